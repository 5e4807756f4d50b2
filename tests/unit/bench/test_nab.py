"""The scorer against what NAB itself published."""

import numpy as np
import pytest

from tests.bench import nab

# results/final_results.json of NAB 1.1
PUBLISHED = {
    "windowedGaussian": {"standard": 39.65, "low FP": 20.87, "low FN": 47.41},
    "relativeEntropy": {"standard": 54.64, "low FP": 47.60, "low FN": 58.84},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_entries_have_their_published_scores(name):
    rows = nab.load("nab")["rows"]
    scores = np.split(nab.load("nab_published")[name], np.cumsum(rows)[:-1])
    found = {profile: scored.score for profile, scored in nab.evaluate(scores).items()}
    assert found == pytest.approx(PUBLISHED[name], abs=0.005)


def test_silence_is_0_and_the_windows_themselves_are_nearly_100():
    silent = [np.zeros(len(file.values)) for file in nab.files()]
    perfect = [np.where(np.diff(file.window, prepend=-1) > 0, 1.0, 0.0) for file in nab.files()]
    for profile in nab.PROFILES.values():
        assert nab.score(silent, profile, at=0.5).score == 0
        assert 95 < nab.score(perfect, profile).score <= 100
