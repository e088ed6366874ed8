"""The collecting worker: reads jobs from stdin, a line of JSON each, and answers on stdout.

    JOB  ->  {"beat": n} for each measurement, then {"records": [TEXT...]}, or {"error": text} where it cannot be run,
             or {"lost": text} where the device was lost over it, which says nothing about the job

It ends when stdin does, and when nobody reads its answers any more.
"""

import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

from tensorwise.collect.executors import AnyJob
from tensorwise.collect.job import Job
from tensorwise.collect.staged_job import StagedJob
from tensorwise.collect.task_job import TaskJob
from tensorwise.device.worker import requests, user_of
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.reading import parse_json, shown


def main() -> None:
    """Serve jobs until stdin ends."""
    # Results travel on the real stdout; whatever a library prints must not get between them.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in requests(user_of()):
        count = itertools.count(1)
        try:
            data = parse_json(line, "this is no job")
            records = job_of(data).measured(
                lambda count=count: print(json.dumps({"beat": next(count)}), file=answers),  # type: ignore[misc]
            )
            answer: dict[str, object] = {"records": [record.to_json() for record in records]}
        except (MeasurementError, MemoryError, OSError) as error:
            answer = {"lost": str(error) or type(error).__name__}
        except TensorwiseError as error:
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps(answer), file=answers)


def job_of(data: Any) -> AnyJob:
    """Return the job of a JSON object; InputError where it is none."""
    if not isinstance(data, Mapping):
        raise InputError(f"a job is a JSON object, got {shown(data)}")
    if "staged" in data:
        return StagedJob.from_json(data)
    return TaskJob.from_json(data) if "task" in data else Job.from_json(data)


if __name__ == "__main__":
    main()
