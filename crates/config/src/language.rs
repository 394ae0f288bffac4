//! Which language a file is written in.

use std::path::Path;
use std::str::FromStr;

/// A configuration language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The native language: docs/language.md.
    Native,
    /// altq.conf(5), and its ancestor cbq.conf.
    Altq,
    /// ALTQ in pf.conf(5).
    Pf,
    /// Linux tc.
    Tc,
    /// Cisco MQC.
    Mqc,
}

impl Language {
    /// All languages, each with its word for `--language`.
    pub const ALL: [(&'static str, Language); 5] = [
        ("native", Language::Native),
        ("altq", Language::Altq),
        ("pf", Language::Pf),
        ("tc", Language::Tc),
        ("mqc", Language::Mqc),
    ];

    /// Its word for `--language`.
    pub fn name(self) -> &'static str {
        Language::ALL.iter().find(|(_, language)| *language == self).map_or("native", |(name, _)| name)
    }

    /// The language of a file by its name: `.altq` is native; `.conf` is altq.conf, cbq.conf or
    /// pf.conf, told apart by the first statement of `text`; `.tc` or `.sh` is a tc script; `.ios`
    /// or `.cfg` is MQC. `None` for any other name.
    pub fn of(path: &Path, text: &str) -> Option<Language> {
        match path.extension()?.to_str()? {
            "altq" => Some(Language::Native),
            "tc" | "sh" => Some(Language::Tc),
            "ios" | "cfg" => Some(Language::Mqc),
            "conf" => Some(Language::of_conf(text)),
            _ => None,
        }
    }

    /// The language of a `.conf`: pf.conf if the first statement begins with one of the words below
    /// or sets a macro, otherwise altq.conf. So a misspelt command of altq.conf is reported as a
    /// command of altq.conf. `altq on` belongs to pf.conf, `altq IF enable` to altqd's console.
    fn of_conf(text: &str) -> Language {
        let statement =
            text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
        let mut words = statement.split_whitespace();
        let pf = match (words.next().unwrap_or(""), words.next().unwrap_or("")) {
            ("altq", "on") => true,
            (first, _) if first.contains('=') => true,
            (_, second) if second.starts_with('=') => true,
            (
                "queue" | "pass" | "block" | "match" | "set" | "scrub" | "table" | "ext_if" | "anchor" | "antispoof",
                _,
            ) => true,
            ("nat" | "rdr" | "binat" | "load" | "include", _) => true,
            _ => false,
        };
        if pf { Language::Pf } else { Language::Altq }
    }
}

impl FromStr for Language {
    type Err = String;

    fn from_str(word: &str) -> Result<Language, String> {
        Language::ALL
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, language)| *language)
            .ok_or_else(|| format!("`{word}` is not a language: native or altq; pf, tc and mqc are not built yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_first_statements_tell() {
        let of = |name: &str, text: &str| Language::of(Path::new(name), text);
        assert_eq!(of("a.altq", ""), Some(Language::Native));
        assert_eq!(of("a.sh", ""), Some(Language::Tc));
        assert_eq!(of("a.cfg", ""), Some(Language::Mqc));
        assert_eq!(of("altq.conf", "# x\n\ninterface em0 bandwidth 10M cbq\n"), Some(Language::Altq));
        assert_eq!(of("x.conf", "altq on em0 cbq bandwidth 20Mb queue { a }\n"), Some(Language::Pf));
        assert_eq!(of("x.conf", "ext = \"em0\"\naltq on em0"), Some(Language::Pf));
        assert_eq!(of("x.conf", "if=em0\n"), Some(Language::Pf));
        assert_eq!(of("x.conf", "interfase em0 cbq\n"), Some(Language::Altq));
        assert_eq!(of("policy", "link a {}"), None);
    }
}
