//! A file that is replaced as a whole, so that after a crash there is the old one or the new one.
//!
//! The new text is written to another file and synced to the disk (fsync(2)). Then this file takes
//! the name of the old one (rename(2)), and the folder, which holds the name, is synced as well.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The longest file that is read, in bytes.
const MOST: u64 = 1 << 30;

/// The steps of replacing a file.
pub trait Disk {
    /// The file, or nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self) -> Result<Option<Vec<u8>>, String>;

    /// Writes the other file.
    ///
    /// # Errors
    /// It cannot be written.
    fn write_beside(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// Syncs the other file to the disk.
    ///
    /// # Errors
    /// It cannot be synced.
    fn sync_beside(&mut self) -> Result<(), String>;

    /// Gives the other file the name of the first.
    ///
    /// # Errors
    /// It cannot be renamed.
    fn rename(&mut self) -> Result<(), String>;

    /// Syncs the folder to the disk.
    ///
    /// # Errors
    /// It cannot be synced.
    fn sync_folder(&mut self) -> Result<(), String>;
}

/// Replaces the file. When this returns without an error, the new one is on the disk.
///
/// # Errors
/// That of a step. Then either the old file is there or the new one.
pub fn replace(disk: &mut impl Disk, bytes: &[u8]) -> Result<(), String> {
    disk.write_beside(bytes)?;
    disk.sync_beside()?;
    disk.rename()?;
    disk.sync_folder()
}

/// A file in a folder.
#[derive(Clone, Debug)]
pub struct InFolder {
    folder: PathBuf,
    name: String,
}

impl InFolder {
    /// The file of this name. Neither folder nor file is made before something is written.
    pub fn new(folder: &Path, name: &str) -> InFolder {
        InFolder { folder: folder.to_owned(), name: name.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn beside(&self) -> PathBuf {
        self.folder.join(format!("{}.new", self.name))
    }

    fn wrong(path: &Path, error: &std::io::Error) -> String {
        format!("{}: {error}", path.display())
    }
}

impl Disk for InFolder {
    fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        let path = self.path();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(InFolder::wrong(&path, &error)),
        };
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).map_err(|error| InFolder::wrong(&path, &error))?;
        Ok(Some(bytes))
    }

    fn write_beside(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !self.folder.is_dir() {
            fs::create_dir_all(&self.folder).map_err(|error| InFolder::wrong(&self.folder, &error))?;
            // Its name must survive a loss of power as well.
            let above = self.folder.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
            File::open(above).and_then(|above| above.sync_all()).map_err(|error| InFolder::wrong(above, &error))?;
        }
        let path = self.beside();
        // Only the owner may read it: a policy may name customers.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(|error| InFolder::wrong(&path, &error))
    }

    fn sync_beside(&mut self) -> Result<(), String> {
        let path = self.beside();
        File::open(&path).and_then(|file| file.sync_all()).map_err(|error| InFolder::wrong(&path, &error))
    }

    fn rename(&mut self) -> Result<(), String> {
        let path = self.path();
        fs::rename(self.beside(), &path).map_err(|error| InFolder::wrong(&path, &error))
    }

    fn sync_folder(&mut self) -> Result<(), String> {
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(|error| InFolder::wrong(&self.folder, &error))
    }
}
