//! Links of hfsc classes.
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};

pub const MBIT: u64 = 1_000_000;

/// A class by its words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Class {
    pub parent: u32,
    pub realtime: Option<ServiceCurve>,
    pub share: Option<ServiceCurve>,
    pub limit: Option<ServiceCurve>,
    pub packets: Option<u32>,
}

/// A straight line.
pub fn line(rate: u64) -> ServiceCurve {
    ServiceCurve::linear(Rate::bit_s(rate))
}

/// Two pieces.
pub fn bent(first: u64, until: Nanos, then: u64) -> ServiceCurve {
    ServiceCurve { first: Rate::bit_s(first), until, then: Rate::bit_s(then) }
}

/// A class with a share.
pub fn share(parent: u32, rate: u64) -> Class {
    Class { parent, share: Some(line(rate)), ..Class::default() }
}

impl Class {
    pub fn realtime(self, curve: ServiceCurve) -> Class {
        Class { realtime: Some(curve), ..self }
    }

    pub fn limit(self, rate: u64) -> Class {
        Class { limit: Some(line(rate)), ..self }
    }

    pub fn packets(self, packets: u32) -> Class {
        Class { packets: Some(packets), ..self }
    }

    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        for (word, curve) in [("realtime", self.realtime), ("linkshare", self.share), ("upperlimit", self.limit)] {
            if let Some(curve) = curve {
                settings.set(word, Value::Curve(curve));
            }
        }
        settings
    }

    pub fn spec(&self) -> ClassSpec {
        let limit = self.packets.map(Limit::Packets);
        ClassSpec {
            parent: self.parent,
            settings: self.settings(),
            queue: limit.map(|limit| QueueSpec::new("drop_tail", limit)),
            scheduler: None,
        }
    }
}

/// A link; number 0 is the root, the first of `classes` is number 1.
pub fn link(rate: u64, classes: &[Class]) -> LinkSpec {
    let mut all = vec![ClassSpec::root()];
    all.extend(classes.iter().map(Class::spec));
    LinkSpec::new(Rate::bit_s(rate), SchedulerSpec::new("hfsc"), all)
}
