//! Arithmetic on token buckets of controlled load (RFC 2211, Ordering and Merging, RFC 2210 2, RFC
//! 2215 3.6), and the blockade that keeps a request too large from keeping others out (RFC 2205
//! 2.5, 3.5).

use crate::wire::Tspec;

/// Whether `a` is at least `b`: traffic that conforms to `b` conforms to `a` (RFC 2211, Ordering
/// and Merging: r, b, p and M at least as large, m at most as large).
pub fn at_least(a: &Tspec, b: &Tspec) -> bool {
    a.rate >= b.rate
        && a.burst >= b.burst
        && a.peak >= b.peak
        && a.max_packet >= b.max_packet
        && a.min_unit <= b.min_unit
}

/// What one reservation must be for either request (RFC 2211, Ordering and Merging, the least upper
/// bound that is passed upstream): the larger r, b and p, the smaller m. M is the smaller one,
/// because a packet larger than one receiver's path carries cannot be promised to all.
pub fn merge(a: &Tspec, b: &Tspec) -> Tspec {
    Tspec {
        rate: a.rate.max(b.rate),
        burst: a.burst.max(b.burst),
        peak: a.peak.max(b.peak),
        min_unit: a.min_unit.min(b.min_unit),
        max_packet: a.max_packet.min(b.max_packet),
    }
}

/// What several senders may send together, sharing a reservation (RFC 2211, Ordering and Merging,
/// RFC 2215 3.6): sums of r, b and p, the smaller m, the larger M.
pub fn sum(a: &Tspec, b: &Tspec) -> Tspec {
    Tspec {
        rate: a.rate + b.rate,
        burst: a.burst + b.burst,
        peak: a.peak + b.peak,
        min_unit: a.min_unit.min(b.min_unit),
        max_packet: a.max_packet.max(b.max_packet),
    }
}

/// What is to be installed for a request and the traffic that its senders announced (RFC 2205
/// 3.11.2 and RFC 2211, Ordering and Merging): the smaller r, p, m and M. Of the bursts the larger
/// one if neither request nor traffic is at least the other, because a smaller r with the smaller b
/// would promise less than either; the smaller one otherwise.
pub fn least(a: &Tspec, b: &Tspec) -> Tspec {
    if at_least(a, b) {
        return *b;
    }
    if at_least(b, a) {
        return *a;
    }
    Tspec {
        rate: a.rate.min(b.rate),
        burst: a.burst.max(b.burst),
        peak: a.peak.min(b.peak),
        min_unit: a.min_unit.min(b.min_unit),
        max_packet: a.max_packet.min(b.max_packet),
    }
}

/// The greatest lower bound (RFC 2205 3.5), for when every request is blockaded. m is at most M, as
/// RFC 2215 3.6 wants it.
pub fn greatest_lower(a: &Tspec, b: &Tspec) -> Tspec {
    let max_packet = a.max_packet.min(b.max_packet);
    Tspec {
        rate: a.rate.min(b.rate),
        burst: a.burst.min(b.burst),
        peak: a.peak.min(b.peak),
        min_unit: a.min_unit.max(b.min_unit).min(max_packet),
        max_packet,
    }
}

/// Whether a request is blockaded by one that was refused upstream (RFC 2205 3.5): it is unless the
/// refused one is strictly greater.
pub fn is_blockaded(refused: &Tspec, request: &Tspec) -> bool {
    !(at_least(refused, request) && refused != request)
}

/// What goes upstream for a sender (RFC 2205 3.5): the merge of all requests that are not
/// blockaded, or, if all of them are, their greatest lower bound. None without a request.
pub fn upstream(requests: &[Tspec], refused: Option<&Tspec>) -> Option<Tspec> {
    let free = requests.iter().filter(|request| refused.is_none_or(|refused| !is_blockaded(refused, request)));
    let merged = free.copied().reduce(|a, b| merge(&a, &b));
    merged.or_else(|| requests.iter().copied().reduce(|a, b| greatest_lower(&a, &b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tspec(rate: f32, burst: f32, peak: f32, min_unit: u32, max_packet: u32) -> Tspec {
        Tspec { rate, burst, peak, min_unit, max_packet }
    }

    const INFINITE: f32 = f32::INFINITY;

    /// The example of RFC 2211's rules: neither bucket is at least the other.
    #[test]
    fn two_unordered_buckets() {
        let a = tspec(1e5, 1e4, INFINITE, 64, 1500);
        let b = tspec(5e4, 2e4, 5e5, 128, 1400);
        assert!(!at_least(&a, &b) && !at_least(&b, &a));
        assert_eq!(merge(&a, &b), tspec(1e5, 2e4, INFINITE, 64, 1400));
        assert_eq!(sum(&a, &b), tspec(1.5e5, 3e4, INFINITE, 64, 1500));
        assert_eq!(least(&a, &b), tspec(5e4, 2e4, 5e5, 64, 1400));
        assert_eq!(greatest_lower(&a, &b), tspec(5e4, 1e4, 5e5, 128, 1400));
        let (narrow, wide) = (tspec(1e4, 1e3, 1e5, 64, 100), tspec(1e4, 1e3, 1e5, 500, 1500));
        assert!(greatest_lower(&narrow, &wide).is_legal());
    }

    #[test]
    fn of_ordered_buckets_the_smaller_one_is_installed() {
        let small = tspec(5e4, 1e4, 5e5, 128, 1400);
        let large = tspec(1e5, 2e4, INFINITE, 64, 1500);
        assert!(at_least(&large, &small) && !at_least(&small, &large));
        assert_eq!(least(&large, &small), small);
        assert_eq!(least(&small, &large), small);
        assert_eq!(least(&small, &small), small);
    }

    /// RFC 2205 3.5: the killer reservation. A request that was refused does not keep a smaller one
    /// out, and is not asked for again as long as the smaller one is there.
    #[test]
    fn a_blockade_lets_smaller_requests_through() {
        let small = tspec(5e4, 1e4, INFINITE, 64, 1500);
        let large = tspec(1e6, 1e4, INFINITE, 64, 1500);
        assert_eq!(upstream(&[small, large], None), Some(large));
        assert!(is_blockaded(&large, &large), "the refused request itself");
        assert!(!is_blockaded(&large, &small));
        assert_eq!(upstream(&[small, large], Some(&large)), Some(small));
        // Nothing is left unblockaded: the greatest lower bound of all.
        assert_eq!(upstream(&[small, large], Some(&small)), Some(small));
        assert_eq!(upstream(&[large], Some(&large)), Some(large));
        assert_eq!(upstream(&[], Some(&large)), None);
    }
}
