//! hfsc: service curves (tc-hfsc(8), net/sched/sch_hfsc.c).

use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ROOT, Regulator};
use altq_engine::units::{Nanos, Rate};

use super::given::Given;
use super::{Builder, LINK};
use crate::handle::Handle;
use crate::tree::{Class, ClassWords, Curve, Qdisc, QdiscWords};

impl Builder<'_> {
    /// The link's own hfsc.
    pub(super) fn hfsc(&mut self, parent: Handle) {
        let link = self.link;
        let handle = self.handle();
        let served = self.served(ROOT);
        self.nobody_took(ROOT, "the kernel's hfsc has", Given::new(&link.spec.scheduler.settings).rest());
        let whole = self.curve(ServiceCurve::linear(link.spec.rate));
        let ul = if link.spec.regulator == Regulator::None { None } else { whole };
        let mut classes = vec![Class {
            handle: Handle::new(handle.major(), LINK),
            parent: handle,
            words: Some(ClassWords::Hfsc { rt: None, ls: whole, ul }),
            id: ROOT,
        }];
        for id in served.iter().copied() {
            let Some(spec) = link.spec.classes.get(id as usize) else { continue };
            let mut given = Given::new(&spec.settings);
            let curves = ["realtime", "linkshare", "upperlimit"].map(|word| given.curve(word));
            self.nobody_took(id, "the kernel's hfsc has", given.rest());
            let [rt, ls, ul] = curves.map(|curve| curve.and_then(|curve| self.curve(curve)));
            let leaf = self.is_leaf(id, ROOT);
            let name = link.class_name(id);
            if rt.is_some() && !leaf {
                let message =
                    format!("the kernel's hfsc has deadlines only for leaves, and `{name}` has classes below it");
                self.refuse(self.place(id, "realtime"), message, None);
            }
            if ul.is_some() && ls.is_none() {
                let message = format!(
                    "the kernel's hfsc limits only what a class gets by `linkshare`: `{name}` has \
                                       no linkshare"
                );
                self.refuse(self.place(id, "upperlimit"), message, None);
            }
            if ls.is_none() && (rt.is_none() || !leaf) {
                let message = format!("the kernel's hfsc never serves `{name}`: it has neither deadline nor share");
                self.refuse(self.place(id, ""), message, Some("write `linkshare` in it".to_owned()));
            }
            let above = if spec.parent == ROOT { LINK } else { spec.parent as u16 };
            classes.push(Class {
                handle: Handle::new(handle.major(), id as u16),
                parent: Handle::new(handle.major(), above),
                words: Some(ClassWords::Hfsc { rt, ls, ul }),
                id,
            });
        }
        self.note(
            "the kernel's hfsc measures time in steps of 64 ns and wakes by a timer: a packet may be that much late"
                .to_owned(),
        );
        self.note(
            "the kernel's hfsc serves deadlines even beyond the upper limits above: a burst by deadline may exceed \
             the link's rate for a moment"
                .to_owned(),
        );
        let default = self.default(ROOT);
        self.tree.sizes = self.sizes();
        let filters = self.filters(ROOT, handle, &|class| Handle::new(handle.major(), class as u16), None);
        self.tree.qdiscs.push(Qdisc {
            handle,
            parent,
            words: QdiscWords::Hfsc { default: default.map_or(0, |class| class as u16) },
            classes,
            filters,
            holds: None,
        });
        self.leaves(ROOT, handle, &served);
    }

    /// A curve in the kernel's units; `None` if it is 0 everywhere.
    fn curve(&mut self, curve: ServiceCurve) -> Option<Curve> {
        let ServiceCurve { first, until, then } = curve;
        if then.is_zero() && (first.is_zero() || until == 0) {
            return None;
        }
        let first = if until == 0 { 0 } else { self.slope(first) };
        let until = self.micros(until);
        Some(Curve { first, until, then: self.slope(then) })
    }

    /// A slope in bytes a second; 0 stays 0.
    fn slope(&mut self, rate: Rate) -> u32 {
        if rate.is_zero() {
            return 0;
        }
        let bytes = self.bytes_s(rate);
        u32::try_from(bytes).unwrap_or_else(|_| {
            let message = format!("the kernel's hfsc has no rate above 34 Gbit/s, and {rate} is more");
            self.refuse(self.link.span, message, None);
            u32::MAX
        })
    }

    /// A time in whole microseconds, rounded up, as the kernel takes times.
    pub(super) fn micros(&mut self, time: Nanos) -> u32 {
        if !time.is_multiple_of(1000) {
            self.note("the kernel takes times in whole microseconds: they are rounded up".to_owned());
        }
        u32::try_from(time.div_ceil(1000)).unwrap_or(u32::MAX)
    }
}
