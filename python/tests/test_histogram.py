"""Histograms: what they say, and that they add up."""

import json
import pickle

import numpy
import pytest

from altq import Histogram, PacketError


def test_percentiles_are_within_a_thirty_second():
    values = numpy.random.default_rng(1).integers(0, 10**9, 20_000)
    histogram = Histogram(values)
    ordered = numpy.sort(values)
    for per_cent in (1, 50, 99, 99.9, 100):
        exact = ordered[int(numpy.ceil(len(values) * per_cent / 100)) - 1]
        assert abs(histogram.percentile_ns(per_cent) - exact) <= exact / 32 + 1
    assert (len(histogram), histogram.max_ns) == (20_000, values.max())
    assert histogram.mean_ns == values.sum() // 20_000


def test_sums_are_those_of_all_values():
    values = numpy.arange(0, 1_000_000, 37)
    whole, parts = Histogram(values), [Histogram(values[at::3]) for at in range(3)]
    total = parts[0] + pickle.loads(pickle.dumps(parts[1])) + Histogram.from_json(parts[2].to_json())
    assert total.to_json() == whole.to_json()
    parts[0].add(values[1::3])
    parts[0].add(list(values[2::3]))
    assert parts[0].to_json() == whole.to_json()


@pytest.mark.parametrize("kind", ["<u8", "<i8", "<u4", ">u8"])
def test_columns_of_records_are_read_as_they_are(kind):
    # 11 bytes, or 7, from value to value: no multiple of a value's length.
    records = numpy.zeros(5, dtype=[("bytes", "<u2"), ("time_ns", kind), ("class", "u1")])
    records["time_ns"] = [10, 20, 30, 40, 100]
    records["bytes"], records["class"] = 0xFFFF, 0xFF
    for column, values in ((records["time_ns"], [10, 20, 30, 40, 100]), (records["time_ns"][::-2], [100, 30, 10])):
        histogram = Histogram(column)
        assert (len(histogram), histogram.max_ns) == (len(values), 100)
        assert histogram.mean_ns == sum(values) // len(values)


def test_nothing_is_nothing():
    empty = Histogram()
    assert (len(empty), empty.mean_ns, empty.max_ns, empty.percentile_ns(50)) == (0, None, None, None)
    assert len(empty + Histogram([])) == 0


def test_what_is_wrong_is_said():
    with pytest.raises(PacketError, match="whole numbers"):
        Histogram([1.5])
    with pytest.raises(PacketError, match="below 0"):
        Histogram([-1])
    with pytest.raises(ValueError, match="no percentile"):
        Histogram([1]).percentile_ns(101)
    with pytest.raises(ValueError, match="no histogram"):
        Histogram.from_json("{}")
    document = json.loads(Histogram([1, 2]).to_json())
    for changed in ({"counts": [[65535, 2]]}, {"count": 2**64 - 1}, {"sum": 5}):
        with pytest.raises(ValueError, match="do not belong together"):
            Histogram.from_json(json.dumps(document | changed))
