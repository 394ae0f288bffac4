//! Makes a link of an interface of altq.conf(5).

use altq_engine::classify::{Order, Rule, RuleSet};
use altq_engine::link::Overhead;
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, ROOT, Regulator, SchedulerSpec, Timer};
use altq_engine::units::Rate;

use super::file::{ATM_MTU, Discipline, Interface};
use crate::policy::{Class, Device, Link};
use crate::reservations::Reservations;

impl Interface {
    /// Makes a link from the interface. The root class becomes the root of the link if it has the
    /// interface's whole rate; otherwise it becomes a class below the link's root.
    pub fn lower(self, cbq_conf: bool) -> Link {
        let Interface { name, device, rate, mtu, mut notes, .. } = self;
        let scheduler = self.discipline.map_or("fifo", Discipline::scheduler);
        // docs/reference/altq.md 3: packets for a class of hfsc that has classes below it go to the
        // default class.
        let strays = (self.discipline == Some(Discipline::Hfsc)).then_some(self.default).flatten();
        let has_children: Vec<bool> =
            (0..self.classes.len()).map(|at| self.classes.iter().any(|class| class.parent == Some(at))).collect();
        let whole = self.classes.first().is_none_or(|root| root.bandwidth >= rate / 100 * 100);
        let conditions = self.discipline == Some(Discipline::Null);
        let regulator = match (self.tbrsize, cbq_conf) {
            _ if conditions => {
                notes.push("conditioners only: what arrives is metered, and nothing is held back".to_owned());
                Regulator::None
            }
            _ if self.no_tbr => {
                notes.push("no token bucket, as `no-tbr` says".to_owned());
                Regulator::None
            }
            (Some(depth), _) => Regulator::Depth(depth),
            (None, true) => {
                notes.push("no token bucket: a cbq.conf is of ALTQ 0.x to 1.x, which had none".to_owned());
                Regulator::None
            }
            (None, false) => {
                notes.push("the token bucket is the one that altqd puts in by itself".to_owned());
                Regulator::Altq
            }
        };
        let whose = if mtu == ATM_MTU { "that of ATM interfaces is taken" } else { "that of Ethernet is taken" };
        notes.push(format!("MTU {mtu}: this language states none and altqd asked the interface; {whose}"));
        let root = ClassSpec { parent: ROOT, settings: Settings::new(), queue: None, scheduler: None };
        let mut classes = Vec::with_capacity(self.classes.len() + 1);
        let mut specs = vec![root];
        let mut root_words = self.words;
        if !whole {
            classes.push(Class {
                name: name.clone(),
                span: self.span,
                words: std::mem::take(&mut root_words),
                ..Class::default()
            });
        }
        let shift = usize::from(!whole);
        // Reservations go below a class of CBQ that is not the root class.
        let reserves = self.reservations.filter(|_| self.discipline == Some(Discipline::Cbq));
        let reservations = reserves.and_then(|at| {
            let draft = self.classes.get(at).filter(|draft| draft.parent.is_some())?;
            Some(Reservations::new((at + shift) as ClassId, draft.span))
        });
        for (at, draft) in self.classes.into_iter().enumerate() {
            let is_link = whole && at == 0;
            classes.push(Class {
                name: draft.name,
                span: draft.span,
                words: if is_link { std::mem::take(&mut root_words) } else { draft.words },
                scheduler_words: Vec::new(),
                queue_words: draft.queue_words,
                made: draft.made,
            });
            if !is_link {
                specs.push(ClassSpec {
                    parent: draft.parent.map_or(0, |parent| parent + shift) as ClassId,
                    settings: draft.settings,
                    queue: draft.queue,
                    scheduler: None,
                });
            } else if let Some(root) = specs.first_mut() {
                // Packets that are sent to the root class wait in its queue.
                root.queue = draft.queue;
                // `cleardscp` of the root class holds for the link.
                for (word, value) in draft.settings.iter().filter(|(word, _)| word.split(' ').next() == Some("meter")) {
                    root.settings.set(word, value);
                }
            }
        }
        let (mut rules, mut places) = (Vec::new(), Vec::new());
        for filter in self.filters {
            let class = match strays {
                Some(default) if has_children.get(filter.class) == Some(&true) => default,
                _ => filter.class,
            };
            rules.push(Rule { class: (class + shift) as ClassId, ..filter.rule });
            places.push(filter.span);
        }
        Link {
            name,
            device: Some(Device::Interface { name: device, ingress: conditions }),
            adapt: None,
            spec: LinkSpec {
                rate: Rate::bit_s(rate),
                mtu,
                overhead: Overhead::NONE,
                regulator,
                timer: Timer::Exact,
                scheduler: SchedulerSpec { name: scheduler, settings: self.scheduler },
                classes: specs,
                rules: RuleSet { rules, order: Order::Altq, interfaces: Vec::new() },
                default: self.default.map(|at| (at + shift) as ClassId),
            },
            classes,
            rules: places,
            written_path: None,
            reservations,
            overcommit: false,
            span: self.span,
            notes,
        }
    }
}
