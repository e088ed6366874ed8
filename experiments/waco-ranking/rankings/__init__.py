"""WACO's cost model, judged: how well models with different featurizers rank configs of matrices they have not seen."""
