//! `altq class`, `altq match` and `altq save`: change one thing in the running policy, and write
//! the policy back to its file (docs/apply.md).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use altq_config::Language;
use altq_control::client::{Client, NoFields};
use altq_control::document::Changed;
use altq_control::request::change::{Applied, Running, Safe, hash};
use serde::Serialize;

use super::apply::Safely;
use crate::exit::Exit;
use crate::output;
use crate::socket::{Socket, ask, fail};

/// Options of `altq class`.
#[derive(Debug, clap::Args)]
pub struct Class {
    #[command(subcommand)]
    what: OfClass,
}

#[derive(Debug, clap::Subcommand)]
enum OfClass {
    /// Changes words of a class; words that are not named stay, and `no WORD` removes one
    Set {
        /// The class
        #[arg(value_name = "LINK/CLASS", value_parser = place)]
        class: Place,
        /// The words, as in a policy, such as: share 10% priority 6
        #[arg(value_name = "WORDS", required = true, num_args = 1..)]
        words: Vec<String>,
        #[command(flatten)]
        safely: Safely,
        #[command(flatten)]
        socket: Socket,
    },
    /// Makes a class
    Add {
        /// The class
        #[arg(value_name = "LINK/CLASS", value_parser = place)]
        class: Place,
        /// The class above it [default: the link]
        #[arg(long, value_name = "CLASS")]
        below: Option<String>,
        /// Its words
        #[arg(value_name = "WORDS", num_args = 0..)]
        words: Vec<String>,
        #[command(flatten)]
        safely: Safely,
        #[command(flatten)]
        socket: Socket,
    },
    /// Removes a class to which no rule leads; its packets go to the default class
    Remove {
        /// The class
        #[arg(value_name = "LINK/CLASS", value_parser = place)]
        class: Place,
        #[command(flatten)]
        safely: Safely,
        #[command(flatten)]
        socket: Socket,
    },
}

/// Options of `altq match`.
#[derive(Debug, clap::Args)]
pub struct Match {
    #[command(subcommand)]
    what: OfMatch,
}

#[derive(Debug, clap::Subcommand)]
enum OfMatch {
    /// Makes a rule, before all others
    Add {
        /// The link
        #[arg(value_name = "LINK")]
        link: String,
        /// The rule, such as: 'dport 80,443 -> web'
        #[arg(value_name = "RULE", required = true, num_args = 1..)]
        rule: Vec<String>,
        /// Adds it after all others
        #[arg(long)]
        last: bool,
        #[command(flatten)]
        safely: Safely,
        #[command(flatten)]
        socket: Socket,
    },
    /// Removes a rule
    Remove {
        /// The link
        #[arg(value_name = "LINK")]
        link: String,
        /// The rule as in the policy
        #[arg(value_name = "RULE", required = true, num_args = 1..)]
        rule: Vec<String>,
        #[command(flatten)]
        safely: Safely,
        #[command(flatten)]
        socket: Socket,
    },
}

/// Options of `altq save`.
#[derive(Debug, clap::Args)]
pub struct Save {
    /// Where the policy is written; `-` is standard output [default: the file that altq was started
    /// with]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replaces the file of the start even if somebody has changed it, or its comments are lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    socket: Socket,
}

/// A class of a link.
#[derive(Clone, Debug)]
struct Place {
    link: String,
    class: String,
}

fn place(text: &str) -> Result<Place, String> {
    match text.split_once('/') {
        Some((link, class)) if !link.is_empty() && !class.is_empty() => {
            Ok(Place { link: link.to_owned(), class: class.to_owned() })
        }
        _ => Err("write the link and the class, as wan/voice".to_owned()),
    }
}

/// The fields of a request.
#[derive(Serialize)]
struct Fields<'a> {
    link: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    last: bool,
    #[serde(flatten)]
    safe: Safe,
}

impl<'a> Fields<'a> {
    fn new(link: &'a str, safely: &Safely) -> Fields<'a> {
        Fields { link, class: None, below: None, words: None, rule: None, last: false, safe: safely.safe() }
    }
}

/// Runs `altq class`.
pub fn class(args: &Class) -> anyhow::Result<Exit> {
    let (op, fields, safely, socket) = match &args.what {
        OfClass::Set { class: Place { link, class }, words, safely, socket } => {
            let words = Some(words.join(" "));
            ("class.set", Fields { class: Some(class), words, ..Fields::new(link, safely) }, safely, socket)
        }
        OfClass::Add { class: Place { link, class }, below, words, safely, socket } => {
            let (words, below) = (Some(words.join(" ")), below.as_deref());
            ("class.add", Fields { class: Some(class), below, words, ..Fields::new(link, safely) }, safely, socket)
        }
        OfClass::Remove { class: Place { link, class }, safely, socket } => {
            ("class.remove", Fields { class: Some(class), ..Fields::new(link, safely) }, safely, socket)
        }
    };
    Ok(change("class", op, &fields, safely, socket))
}

/// Runs `altq match`.
pub fn matches(args: &Match) -> anyhow::Result<Exit> {
    let (op, fields, safely, socket) = match &args.what {
        OfMatch::Add { link, rule, last, safely, socket } => {
            let rule = Some(rule.join(" "));
            ("match.add", Fields { rule, last: *last, ..Fields::new(link, safely) }, safely, socket)
        }
        OfMatch::Remove { link, rule, safely, socket } => {
            ("match.remove", Fields { rule: Some(rule.join(" ")), ..Fields::new(link, safely) }, safely, socket)
        }
    };
    Ok(change("match", op, &fields, safely, socket))
}

fn change(command: &str, op: &str, fields: &Fields<'_>, safely: &Safely, socket: &Socket) -> Exit {
    let connected = safely.check().and_then(|()| socket.connect());
    let asked = connected.and_then(|mut client| Ok((ask::<Applied>(&mut client, op, fields)?, client)));
    match asked {
        Ok((applied, mut client)) => safely.done(command, &mut client, &applied),
        Err(fault) => fail(command, &fault),
    }
}

/// Runs `altq save`.
pub fn save(args: &Save) -> anyhow::Result<Exit> {
    let connected = args.socket.connect();
    let asked = connected.and_then(|mut client| Ok((ask::<Running>(&mut client, "policy", &NoFields {})?, client)));
    let (running, mut client) = match asked {
        Ok(asked) => asked,
        Err(fault) => return Ok(fail("save", &fault)),
    };
    let file = match &args.file {
        Some(file) if file == Path::new("-") => {
            output::print(&running.text)?;
            return Ok(Exit::Ok);
        }
        Some(file) => file.clone(),
        None => PathBuf::from(&running.file),
    };
    if args.file.is_none() && file.file_name() == Some("-".as_ref()) {
        eprintln!("altq save: altq was started with a policy on standard input; `altq save FILE.altq` says where");
        return Ok(Exit::Refused);
    }
    let of_start = std::path::absolute(&file).is_ok_and(|file| file == Path::new(&running.file));
    if fs::read_to_string(&file).is_ok_and(|text| text == running.text) {
        if of_start {
            tell(&mut client, &running);
        }
        eprintln!("altq save: {} has it already", file.display());
        return Ok(Exit::Ok);
    }
    if let Some(why) = misread(&file, &running) {
        eprintln!("altq save: {why}; `altq save FILE.altq` writes it elsewhere");
        return Ok(Exit::Refused);
    }
    if args.file.is_none()
        && let Some(why) = includes(&file, &running.language)
    {
        eprintln!("altq save: {why}; `altq save FILE` writes the whole policy into one file");
        return Ok(Exit::Refused);
    }
    if of_start
        && !args.force
        && let Some(why) = lost(&file, &running, args.file.is_some())
    {
        eprintln!("altq save: {why}; `altq save FILE.altq` writes the policy elsewhere, and --force replaces the file");
        return Ok(Exit::Refused);
    }
    match replace(&file, &running.text) {
        Ok(()) => {
            if of_start {
                tell(&mut client, &running);
            }
            eprintln!("altq save: the policy that runs is in {}", file.display());
            Ok(Exit::Ok)
        }
        Err(error) => {
            eprintln!("altq save: {}: {error}", file.display());
            Ok(if error.kind() == io::ErrorKind::PermissionDenied { Exit::NotPermitted } else { Exit::Failed })
        }
    }
}

/// Why a start would not understand the file: its name stands for another language. A file that is
/// not of that language now is read as `--language` says.
fn misread(file: &Path, running: &Running) -> Option<String> {
    let by_name = Language::of(file, &running.text).filter(|by_name| by_name.name() != running.language)?;
    let is_read_so = !file.exists() || altq_config::load(file, None).is_ok();
    is_read_so.then(|| {
        let (file, by_name, runs) = (file.display(), by_name.name(), &running.language);
        format!("{file} is read as {by_name}, because of its name, and the policy that runs is {runs}")
    })
}

/// Why a file cannot be replaced: its policy is in several files. A file that cannot be read may
/// include others too.
fn includes(file: &Path, language: &str) -> Option<String> {
    let language: Language = match language.parse() {
        Ok(language) => language,
        Err(why) => return Some(why),
    };
    match altq_config::load(file, Some(language)) {
        Ok(policy) => policy.includes().then(|| format!("{} includes other files", file.display())),
        Err(failed) => {
            let why = failed.to_string();
            let why = why.lines().next().unwrap_or("it holds errors");
            Some(format!("whether {} includes other files cannot be told ({why})", file.display()))
        }
    }
}

/// What would be lost with the file of the start. `named`: the user has named the file.
fn lost(file: &Path, running: &Running, named: bool) -> Option<String> {
    let shown = file.display();
    if running.put_together && !named {
        let why = "a link of another file was applied by itself, so the policy that runs has no comments";
        return Some(format!("{why}, and {shown} would lose its own"));
    }
    // If there is no file, nothing is lost. One that cannot be read is not replaced either.
    let text = fs::read(file).ok()?;
    let language = running.language.parse::<Language>().ok();
    let includes = || altq_config::load(file, language).is_ok_and(|policy| policy.includes());
    // What altq has read of several files is not the text of the first. Whoever names it wants the
    // whole policy in it.
    let is_same = running.file_hash.as_deref() == Some(hash(&text).as_str()) || named && includes();
    (!is_same).then(|| format!("{shown} is not the text that altq has read last: somebody has changed it"))
}

/// Tells altq that the file of the start has the text that runs, so that it is no difference any
/// more.
fn tell(client: &mut Client, running: &Running) {
    #[derive(Serialize)]
    struct Fields {
        hash: String,
    }
    // An older altq does not know this. It finds out at SIGHUP.
    let _ = ask::<Changed>(client, "policy.saved", &Fields { hash: hash(running.text.as_bytes()) });
}

/// Writes a new file, for the owner and with the mode of the one that it replaces.
fn write(beside: &Path, text: &str, there: Option<&fs::Metadata>) -> io::Result<()> {
    // Nobody may read what the old file does not let them read.
    let mode = if there.is_some() { 0o600 } else { 0o666 };
    let mut out = File::options().write(true).create_new(true).mode(mode).open(beside)?;
    out.write_all(text.as_bytes())?;
    if let Some(there) = there {
        // Only root may give a file away. Otherwise it belongs to whoever saves.
        let _ = fchown(&out, Some(there.uid()), Some(there.gid()));
        out.set_permissions(there.permissions())?;
    }
    out.sync_all()
}

/// Replaces a file, so that after a crash there is the old one or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A symbolic link to the file stays a link.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut beside = file.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let there = fs::metadata(&file).ok();
    if there.is_some() {
        // Who may not write to a file must not replace it either.
        File::options().write(true).open(&file)?;
    }
    // One may be left from before, and may be a link to somewhere else.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write(&beside, text, there.as_ref()).and_then(|()| fs::rename(&beside, &file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written?;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_named_with_its_link() {
        assert!(place("wan/voice").is_ok_and(|place| place.link == "wan" && place.class == "voice"));
        for text in ["voice", "/voice", "wan/", ""] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("altq-save-{}", std::process::id()));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        fs::remove_file(&path).unwrap();
    }

    /// The file of the start is another text than the one that was read, or has comments that the
    /// running policy has not.
    #[test]
    fn a_file_that_somebody_has_changed_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("altq-lost-{}.altq", std::process::id()));
        let start = "link wan { rate 10Mbit/s  scheduler cbq  class rest { share 40%  default } }\n";
        let running = |file_hash: Option<String>, put_together: bool| Running {
            schema: Running::SCHEMA.to_owned(),
            language: "native".to_owned(),
            text: start.replace("40%", "50%"),
            file: path.display().to_string(),
            file_hash,
            put_together,
        };
        let read = Some(hash(start.as_bytes()));
        let lost = |running: &Running, named: bool| lost(&path, running, named).unwrap_or_default();
        assert_eq!(lost(&running(read.clone(), false), false), "");
        for text in [format!("\u{feff}{start}"), start.to_owned()] {
            fs::write(&path, text).unwrap();
            assert_eq!(lost(&running(read.clone(), false), false), "");
            assert_eq!(lost(&running(read.clone(), true), true), "");
            assert!(lost(&running(read.clone(), true), false).contains("would lose its own"));
        }
        // Somebody has changed it, or it had errors when it was read.
        assert!(lost(&running(None, false), false).contains("somebody has changed it"));
        for text in [format!("{start}# my line\n"), "link wan { rate".to_owned(), String::new()] {
            fs::write(&path, text).unwrap();
            for named in [false, true] {
                assert!(lost(&running(read.clone(), false), named).contains("somebody has changed it"));
            }
        }
        fs::write(&path, format!("include \"none-*.altq\"\n{start}")).unwrap();
        assert_eq!(lost(&running(read, false), true), "");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_includes_others_or_cannot_be_read_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("altq-includes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let whole = "link wan { device bridge a b  rate 10Mbit/s  scheduler cbq  class rest { share 40%  default } }\n";
        fs::write(folder.join("other.altq"), "").unwrap();
        let of = |name: &str, text: &str| {
            fs::write(folder.join(name), text).unwrap();
            includes(&folder.join(name), "native").unwrap_or_default()
        };
        assert_eq!(of("p.altq", whole), "");
        // The name does not say which language it is; altq was started with --language.
        assert_eq!(of("policy", whole), "");
        for include in ["include \"other.altq\"\n", "include \"none-*.altq\"\n"] {
            for name in ["p.altq", "policy"] {
                let why = of(name, &format!("{include}{whole}"));
                assert!(why.ends_with("includes other files"), "{why}");
            }
        }
        // Somebody is still writing it, or what it includes is away.
        for text in ["include \"gone.altq\"\n", "link wan { rate"] {
            let why = of("p.altq", text);
            assert!(why.contains("cannot be told"), "{text}: {why}");
        }
        assert!(includes(&folder.join("away.altq"), "native").is_some());
        fs::remove_dir_all(&folder).unwrap();
    }
}
