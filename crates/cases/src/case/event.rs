//! Changes while a case runs.

use altq_engine::units::{Nanos, Rate};

use super::class::{ClassName, Governed, Links, full_name};

/// A change during the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedEvent {
    /// The time of the change.
    pub at: Nanos,
    /// The change.
    pub what: What,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The link's rate, and that of its wire. Classes keep the rates that they have.
    LinkRate {
        /// The index of the link in [`Case::links`](super::Case::links).
        link: usize,
        /// The new rates there and back; `None`: the direction keeps its rate.
        rates: [Option<Rate>; 2],
    },
    /// Words of a class. Words that are not given stay as they are.
    SetClass {
        /// The class.
        class: ClassName,
        /// Its new parent; `None`: it stays where it is.
        parent: Option<ClassName>,
        /// The new words.
        set: Vec<(String, WordValue)>,
    },
    /// A new class, to which the packets of `flows` go.
    AddClass {
        /// Its name.
        class: ClassName,
        /// The class above; `None`: the link.
        parent: Option<ClassName>,
        /// Its words.
        set: Vec<(String, WordValue)>,
        /// Indices in [`Case::flows`](super::Case::flows) of the flows whose packets go there.
        flows: Vec<usize>,
    },
    /// A class is removed, with the rules that lead to it.
    RemoveClass {
        /// The class.
        class: ClassName,
        /// The class that gets its packets; `None`: they are dropped.
        heir: Option<ClassName>,
    },
    /// A flow starts or stops sending, whatever its times say.
    FlowActive {
        /// The index of the flow in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// True if it sends from now on.
        active: bool,
    },
    /// The rate of a UDP flow.
    FlowRate {
        /// The index of the flow in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// The new rate.
        rate: Rate,
    },
}

/// A change of a class of one link, by the names that classes have in it.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassChange {
    /// Words of a class, or its parent. Words that are not given stay as they are.
    Set {
        /// The class.
        class: String,
        /// Its new parent; `None`: it stays where it is.
        parent: Option<String>,
        /// The new words.
        set: Vec<(String, WordValue)>,
    },
    /// A new class.
    Add {
        /// Its name.
        class: String,
        /// The class above; `None`: the link.
        parent: Option<String>,
        /// Its words.
        set: Vec<(String, WordValue)>,
    },
    /// A class is removed.
    Remove {
        /// The class.
        class: String,
        /// The class that gets its packets; `None`: they are dropped.
        heir: Option<String>,
    },
}

impl What {
    /// For a change of a class: the index of its link among these, and the change itself. `None`:
    /// something else changes.
    ///
    /// # Errors
    /// The name that means no class, or one of several, and why.
    pub fn of_class(&self, links: &Links<'_>) -> Result<Option<(usize, ClassChange)>, (&ClassName, String)> {
        fn about<T>(name: &ClassName, found: Result<T, String>) -> Result<T, (&ClassName, String)> {
            found.map_err(|why| (name, why))
        }
        fn within<'n>(
            links: &Links<'_>,
            link: usize,
            name: &'n Option<ClassName>,
        ) -> Result<Option<String>, (&'n ClassName, String)> {
            let Some(name) = name else { return Ok(None) };
            about(name, links.within(link, &name.text)).map(|name| Some(name.to_owned()))
        }
        let known = |name| {
            let found = about(name, links.find(&name.text))?;
            Ok((found.0, links.class(found).to_owned()))
        };
        Ok(Some(match self {
            What::SetClass { class, parent, set } => {
                let (link, class) = known(class)?;
                (link, ClassChange::Set { class, parent: within(links, link, parent)?, set: set.clone() })
            }
            What::AddClass { class, parent, set, .. } => {
                // Where several links could have the class, its parent may tell which does.
                let (link, class) = match (links.place_of_new(&class.text), parent) {
                    (Ok((link, class)), _) => (link, class.to_owned()),
                    (Err(_), Some(parent)) => (known(parent)?.0, class.text.clone()),
                    (Err(why), None) => return Err((class, why)),
                };
                (link, ClassChange::Add { class, parent: within(links, link, parent)?, set: set.clone() })
            }
            What::RemoveClass { class, heir } => {
                let (link, class) = known(class)?;
                (link, ClassChange::Remove { class, heir: within(links, link, heir)? })
            }
            What::LinkRate { .. } | What::FlowActive { .. } | What::FlowRate { .. } => return Ok(None),
        }))
    }

    /// The class that it changes, adds or removes, as it is written.
    pub fn class(&self) -> Option<&ClassName> {
        match self {
            What::SetClass { class, .. } | What::AddClass { class, .. } | What::RemoveClass { class, .. } => {
                Some(class)
            }
            What::LinkRate { .. } | What::FlowActive { .. } | What::FlowRate { .. } => None,
        }
    }

    /// Whether it changes this class of a direction, or the rate of its link. (A name without a
    /// link means one class only.)
    pub fn changes(&self, way: &Governed<'_>, class: &str) -> bool {
        match self.class() {
            Some(name) => name.text == class || name.text == full_name(way.policy, class),
            None => match self {
                What::LinkRate { link, rates } => *link == way.link && rates[usize::from(way.back)].is_some(),
                _ => false,
            },
        }
    }
}

/// The value of a word in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordValue {
    /// A text: a number with its unit, or a word.
    Text(String),
    /// A number.
    Number(u64),
    /// A flag: true if it is set.
    Flag(bool),
}
