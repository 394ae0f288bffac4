//! What a packet costs in the loop: `cargo bench -p altq-monitor`.

use std::hint::black_box;

use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_monitor::{Departures, FlowKey};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Packets that are made before anything is measured.
const PACKETS: usize = 1 << 16;

fn flow(at: u64, family: u8) -> FlowKey {
    let high = if family == 6 { 0x2001_0db8_u128 << 96 } else { 0 };
    let (src, dst) = (high | u128::from(0x0a00_0000 + at as u32), high | 0xc000_0201);
    FlowKey::of(&Key { src, dst, proto: 6, family, ..Key::default() }.with_ports(40_000, 443))
}

/// Packets of classes below `classes`. `known` of 1000 packets belong to 20 flows, the others to
/// 100,000 flows.
fn packets(classes: u32, known: u64, family: u8) -> Vec<(u32, FlowKey)> {
    let mut random = SplitMix64::new(1);
    let packet = |_| {
        let class = (random.bits() % u64::from(classes)) as u32;
        let at = if random.chance(known, 1000) { random.bits() % 20 } else { 100 + random.bits() % 100_000 };
        (class, flow(at, family))
    };
    (0..PACKETS).map(packet).collect()
}

fn departures(c: &mut Criterion) {
    let mut group = c.benchmark_group("departures");
    group.throughput(Throughput::Elements(1));
    for (family, classes, known) in
        [(4, 1, 1000), (6, 1, 1000), (4, 1, 900), (6, 1, 900), (4, 1, 0), (4, 100, 900), (4, 1000, 900)]
    {
        let packets = packets(classes, known, family);
        let mut departures = Departures::new(classes as usize, classes as usize, 7);
        let name = format!("ipv{family}-{classes}-classes");
        let mut at = 0;
        group.bench_function(BenchmarkId::new(name, format!("{known}-of-1000-known")), |b| {
            b.iter(|| {
                at = (at + 1) % PACKETS;
                let (class, flow) = &packets[at];
                departures.add(black_box(*class), flow, 600);
            })
        });
    }
}

criterion_group!(benches, departures);
criterion_main!(benches);
