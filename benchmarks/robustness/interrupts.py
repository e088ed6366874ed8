"""Claim: Ctrl-C and forks at any moment do no harm: nothing crashes, nothing hangs, nothing is left running.

A process tunes, compiles, transposes and measures this machine's peaks without end, with a cache that is emptied from time
to time, and is sent SIGINT at random moments. Each time it has to go on, or to end as an interrupted program does; at last
its numbers are right and it has no thread that it did not have before. Another process forks at random moments while its
threads are in kernels, make operators and hold locks; each child has to use what its parent could, and end. After both, no
process that they started is left.

    python benchmarks/robustness/interrupts.py --interrupts 1000 --forks 1000
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).parents[2]
MARK = "TENSORWISE_SHOT"
LIMIT_S = 120.0
"""A process that does not go on for so long hangs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--interrupts", type=int, default=1000)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as", dest="role", choices=("shot", "forking"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "shot":
        be_shot()
    elif given.role == "forking":
        fork_on(given.forks, given.seed)
    else:
        result = {
            "interrupts": shoot(given.interrupts, given.seed),
            "forks": forking(given.forks, given.seed),
        }
        text = json.dumps(result, indent=1)
        print(text)
        if given.out:
            given.out.write_text(text)
        harm = ("crashed", "hung", "wrong", "orphans", "threads")
        sys.exit(any(part.get(kind) for part in result.values() for kind in harm))


# -- interrupts ------------------------------------------------------------------------------------------


def matrix() -> sp.csr_array:
    return sp.random_array(
        (400, 300), density=0.03, format="csr", rng=np.random.default_rng(0), dtype=np.float32
    )


def be_shot() -> None:
    """Work until stdin says that it is enough; say so for each round, and in the end whether all is well."""
    import tensorwise as tw
    from tensorwise.device import roofline
    from tensorwise.toolchain.runtime import DRIVER

    a, enough = matrix(), threading.Event()
    x = np.ones(300, np.float32)

    def listen() -> None:
        sys.stdin.readline()
        enough.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()

    def threads() -> int:
        return sum(thread is not listener for thread in threading.enumerate())

    rng = random.Random(os.getpid())

    def peaks() -> None:
        roofline._roofline_at.cache_clear()
        for path in Path(os.environ["TENSORWISE_CACHE_DIR"]).glob("roofline-*"):
            path.unlink(missing_ok=True)
        roofline.roofline(2)

    def tuned() -> None:
        tw.tune(a, "spmv", budget_s=3, threads=2, store=False)

    def compiled() -> None:
        chunk = rng.randrange(2, 64)
        schedule = f"parallel(i,dynamic,{chunk}) unroll(k,{rng.randrange(2, 9)})"
        op = tw.compile("C[i] += A[i,k] * B[k]", A=a, format="(i,k) -> U(i) C(k)", schedule=schedule)
        op(x)

    def used() -> None:
        op = tw.compile("C[i] += A[i,k] * B[k]", A=a, threads=2)
        op @ np.ones((300, rng.randrange(1, 20)), np.float32)
        op.T(np.ones(400, np.float32))

    DRIVER.load()
    before = threads()
    print("ready", flush=True)
    while not enough.is_set():
        with contextlib.suppress(KeyboardInterrupt):
            rng.choice((peaks, tuned, compiled, used))()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    until = time.monotonic() + 10
    while threads() > before and time.monotonic() < until:
        time.sleep(0.05)
    right = np.allclose(tw.compile("C[i] += A[i,k] * B[k]", A=a, threads=2)(x), a @ x, rtol=1e-3, atol=1e-4)
    print(json.dumps({"threads": threads() - before, "right": bool(right)}), flush=True)


def shoot(count: int, seed: int) -> dict[str, object]:
    """Interrupt processes ``count`` times in all."""
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        while found["interrupts"] < count:
            shutil.rmtree(Path(folder) / "cache", ignore_errors=True)
            with started("shot", folder) as (process, mark):
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.readline()
                for _ in range(min(40, count - found["interrupts"])):
                    time.sleep(rng.choice((0.002, 0.02, 0.2, 0.6)) * rng.random())
                    if process.poll() is not None:
                        break
                    process.send_signal(signal.SIGINT)
                    found["interrupts"] += 1
                conclude(process, mark, found)
    return dict(found)


@contextlib.contextmanager
def started(role: str, folder: str, *more: str):  # type: ignore[no-untyped-def]
    """A process of one of the roles, and the mark that it and all that it starts have."""
    mark = f"{os.getpid()}-{random.random()}"
    environment = {
        **os.environ, MARK: mark, "TENSORWISE_CACHE_DIR": f"{folder}/cache", "TENSORWISE_STORE": f"{folder}/s.sqlite",
        "PYTHONPATH": str(ROOT), "TMPDIR": folder,
    }  # fmt: skip
    command = [sys.executable, str(Path(__file__)), "--as", role, *more]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process, mark
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
            if process.returncode < 0 and process.returncode != -signal.SIGINT:
                errors.seek(0)
                sys.stderr.write(errors.read().decode(errors="replace")[-2000:])


def conclude(process: "subprocess.Popen[str]", mark: str, found: Counter[str]) -> None:
    """Have a process end, and count how it did."""
    try:
        said, _ = process.communicate("enough\n", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        found["hung"] += 1
        process.kill()
        process.communicate()
        return
    if process.returncode == 0:
        last = json.loads(said.splitlines()[-1])
        found["threads"] += last.get("threads", 0)
        found["wrong"] += not last.get("right", True)
        found.update({name: last[name] for name in ("hung", "crashed", "forks") if name in last})
        found["went on"] += 1
    elif process.returncode in (1, 130, -signal.SIGINT):
        found["ended as interrupted"] += 1  # it was hit where nothing of ours was running
    else:
        found["crashed"] += 1
        found[f"status {process.returncode}"] += 1
    found["orphans"] += orphans(mark)


def orphans(mark: str) -> int:
    """How many processes with a mark are still there after some seconds."""
    until = time.monotonic() + 10
    while True:
        left = 0
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                left += f"{MARK}={mark}\0".encode() in path.read_bytes()
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


# -- forks -----------------------------------------------------------------------------------------------


def fork_on(count: int, seed: int) -> None:
    """Fork children at random moments while threads work; say how they ended."""
    import tensorwise as tw
    from tensorwise.device.timing import measuring_slot

    a = sp.random_array(
        (20_000, 2_000), density=0.01, format="csr", rng=np.random.default_rng(0), dtype=np.float32
    )
    x, rng = np.ones(2_000, np.float32), random.Random(seed)
    schedules = ("parallel(i,merge-path,16)", "parallel(i,dynamic,16)")
    ops = [
        tw.compile("C[i] += A[i,k] * B[k]", A=a, format="(i,k) -> U(i) C(k)", schedule=schedule, threads=2)
        for schedule in schedules
    ]
    wide = np.ones((2_000, 3), np.float32)
    expected = [op(x) for op in ops]
    for op in ops:
        op @ wide
        op.transpose(copy=True)
    stop = threading.Event()

    def call(op: "tw.Operator") -> None:
        while not stop.is_set():
            op(x)

    def make() -> None:
        small = matrix()
        while not stop.is_set():
            op = tw.compile("C[i] += A[i,k] * B[k]", A=small, threads=2)
            op @ np.ones((300, rng.randrange(1, 20)), np.float32)
            op.transpose()

    def hold() -> None:
        while not stop.is_set():
            with measuring_slot():
                time.sleep(0.002)

    threads = [threading.Thread(target=call, args=(op,), daemon=True) for op in ops]
    threads += [threading.Thread(target=make, daemon=True), threading.Thread(target=hold, daemon=True)]
    for thread in threads:
        thread.start()
    found: Counter[str] = Counter()
    for _ in range(count):
        time.sleep(0.01 * rng.random())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(int(LIMIT_S / 2))
                for op, right in zip(ops, expected, strict=True):
                    status = 2 * (not np.array_equal(op(x), right)) or status
                    op @ wide
                    op.rmatvec(np.ones(20_000, np.float32))
                tw.compile("C[i] += A[i,k] * B[k]", A=matrix(), threads=2)
                with measuring_slot(0.01):
                    pass
                status = 0 if status == 1 else status
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        found["forks"] += 1
        if status:
            hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
            found["hung" if hung else "crashed"] += 1
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
    print(json.dumps({**found, "threads": sum(thread.is_alive() for thread in threads)}), flush=True)


def forking(count: int, seed: int) -> dict[str, object]:
    """Have a process fork ``count`` times."""
    found: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        started("forking", folder, "--forks", str(count), "--seed", str(seed)) as (process, mark),
    ):
        try:
            process.wait(LIMIT_S + 10.0 * count)
        except subprocess.TimeoutExpired:
            found["hung"] += 1
        conclude(process, mark, found)
    return dict(found)


if __name__ == "__main__":
    main()
