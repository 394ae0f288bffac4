//! The option `--set NAME=VALUE`, which gives a case a value from outside.

use altq_cases::case::Given;

/// The option.
#[derive(Debug, clap::Args)]
pub struct Values {
    /// Gives a value of the case, below `values` in its file, in the place of the usual one; may be
    /// given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

fn pair(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, as in rate=5Mbit/s".into()),
    }
}

impl Values {
    /// The values.
    pub fn given(&self) -> Result<Given, String> {
        let mut given = Given::new();
        for (name, value) in &self.set {
            if given.insert(name.clone(), value.clone()).is_some() {
                return Err(format!("--set: {name} is given twice"));
            }
        }
        Ok(given)
    }
}
