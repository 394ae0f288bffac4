mod support;
use support::*;
const SIZES: [&[u32]; 6] = [&[1500], &[64], &[576], &[1000, 160], &[32, 1500, 64, 1024], &[512, 1500]];
#[test]
fn debug() {
    let seed: u64 = std::env::var("SEED").map(|s| s.parse().unwrap()).unwrap_or(0);
    let ph: u64 = std::env::var("PHASE").map(|s| s.parse().unwrap()).unwrap_or(14);
    let excess: &'static str = if std::env::var("PRIO").is_ok() { "priority" } else { "share" };
    let mut random = Random(1000 + seed);
    let rate = random.pick(&[10_000_000, 100_000_000]);
    let classes = tree(&mut random, rate);
    for (i, c) in classes.iter().enumerate() {
        println!(
            "{:2} parent {:2} rate {:9} borrow {} ceil {:?} prio {}",
            i + 1,
            c.parent,
            c.rate,
            c.borrow,
            c.ceiling,
            c.priority
        );
    }
    let mut wire = Wire::new(&link(rate, &classes, excess));
    let mut demand = vec![0.0; classes.len() + 1];
    for phase in 0..=ph {
        let mut sz = vec![];
        for leaf in leaves(&classes) {
            let active = random.chance(55);
            demand[leaf as usize] = if active { f64::INFINITY } else { 0.0 };
            let s = if active { random.pick(&SIZES) } else { &[] };
            sz.push((leaf, s));
            wire.greedy(leaf, s);
        }
        let start = wire.now;
        if phase == ph {
            println!("{:?}", sz);
            let want = ideal_of(rate, &classes, excess, &demand);
            println!("want        {want:8.0?}");
            for k in 1..=20 {
                let got = wire.rates(start + k * S / 10);
                println!("{:5.1} {got:8.0?}", k as f64 / 10.0);
            }
        } else {
            if phase + 1 == ph {
                println!("before: {:?}", sz);
            }
            wire.run(start + S / 5);
            wire.rates(start + 2 * S);
        }
    }
}
