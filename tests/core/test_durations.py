"""How long, as people write it."""

import pytest

from holdfast.core.durations import seconds


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *(("90s", 90), ("45m", 2700), ("8h", 28800), ("2h30m", 9000), ("1d", 86400), ("1d2h3m4s", 93784), ("90", 90)),
        *(("0.5", 0.5), (" 5m ", 300), (0, 0), (1.5, 1.5), (366 * 86400, 366 * 86400)),
    ],
)
def test_what_people_write(said, meant):
    assert seconds(said) == meant


@pytest.mark.parametrize(
    "said",
    [
        *(
            "",
            " ",
            "m",
            "5 m",
            "m5",
            "-5m",
            "5M",
            "5mm",
            "5m5h",
            "1e3",
            "٣s",
            "inf",
            "nan",
            "400d",
            "9" * 5000,
            "5m\n5s",
        ),
        *(None, True, -1, float("nan"), float("inf"), 10**400, [5], {}),
    ],
)
def test_what_could_mean_something_else_is_refused_with_the_rule(said):
    with pytest.raises(ValueError, match="a length of time such as"):
        seconds(said)
