"""Tests of percentiles by definition, independent of rounding of products of floats."""

import pytest

from weft.tb.sim.flow.percentile import percentile


@pytest.mark.parametrize(("count", "share", "wanted"), [(1000, 0.999, 999), (1000, 0.5, 500), (10, 0.999, 10),
                                                        (2000, 0.999, 1998), (1, 0.5, 1), (100, 0.07, 7)])
def test_percentile_is_a_value_of_the_sample(count, share, wanted):
    assert percentile(range(1, count + 1), share) == wanted
