//! Tables of results as files: Parquet for tasks and for the whole, CSV for the whole on request.
//!
//! The same table gives the same bytes, wherever it is written. A file appears whole or not at all.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::SweepError;
use crate::plan::Task;
use crate::rows::{Cells, Kind, Table};

/// The folder of tasks' results, within that of a sweep.
const PARTS: &str = "parts";
/// The end of the names of tasks' results.
const ENDING: &str = ".parquet";

/// Writes a table as Parquet, some rows at a time.
pub struct Parquet<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> Parquet<W> {
    /// A file with these columns.
    pub fn new(to: W, schema: &[(String, Kind)]) -> Result<Parquet<W>, ParquetError> {
        let fields = schema.iter().map(|(name, kind)| {
            let (physical, logical, repetition) = match kind {
                Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
                Kind::Whole => (Physical::INT64, None, Repetition::REQUIRED),
                Kind::Number => (Physical::DOUBLE, None, Repetition::OPTIONAL),
            };
            let field = Type::primitive_type_builder(name, physical);
            Ok(Arc::new(field.with_logical_type(logical).with_repetition(repetition).build()?))
        });
        let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
        let schema = Type::group_type_builder("altq_sweep").with_fields(fields).build()?;
        // Statistics and indices of pages take more room than such short pages are worth.
        let properties = WriterProperties::builder()
            .set_created_by(format!("altq {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .build();
        Ok(Parquet { writer: SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))? })
    }

    /// Adds rows, which have the columns of the file in their order.
    pub fn add(&mut self, rows: &Table) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (_, cells) in &rows.columns {
            let Some(mut column) = group.next_column()? else { break };
            match cells {
                Cells::Whole(cells) => {
                    column.typed::<Int64Type>().write_batch(cells, None, None)?;
                }
                Cells::Number(cells) => {
                    let known: Vec<f64> = cells.iter().flatten().copied().collect();
                    column.typed::<DoubleType>().write_batch(&known, Some(&levels(cells)), None)?;
                }
                Cells::Text(cells) => {
                    let known: Vec<ByteArray> =
                        cells.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
                    column.typed::<ByteArrayType>().write_batch(&known, Some(&levels(cells)), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Ends the file, and returns what it was written to.
    pub fn finish(self) -> Result<W, ParquetError> {
        self.writer.into_inner()
    }
}

/// 1 for a cell with a value, 0 for one without.
fn levels<T>(cells: &[Option<T>]) -> Vec<i16> {
    cells.iter().map(|cell| i16::from(cell.is_some())).collect()
}

/// Writes a whole table as Parquet.
pub fn bytes(table: &Table) -> Result<Vec<u8>, ParquetError> {
    let mut file = Parquet::new(Vec::new(), &table.schema())?;
    file.add(table)?;
    file.finish()
}

/// Names and kinds of the columns of a file.
///
/// # Errors
/// If it cannot be read, or is no result of a sweep.
pub fn schema(path: &Path) -> Result<Vec<(String, Kind)>, SweepError> {
    open(path)?.1
}

type Schema = Result<Vec<(String, Kind)>, SweepError>;

fn open(path: &Path) -> Result<(SerializedFileReader<File>, Schema), SweepError> {
    let file = File::open(path).map_err(SweepError::io(path))?;
    let reader = SerializedFileReader::new(file).map_err(|error| damaged(path, &error))?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let columns = columns.iter().map(|column| {
        let kind = match column.physical_type() {
            Physical::BYTE_ARRAY => Kind::Text,
            Physical::INT64 => Kind::Whole,
            Physical::DOUBLE => Kind::Number,
            other => return Err(damaged(path, &format!("column {} is of type {other}", column.name()))),
        };
        Ok((column.name().to_owned(), kind))
    });
    let schema = columns.collect();
    Ok((reader, schema))
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> SweepError {
    SweepError::Damaged { path: path.to_owned(), why: why.to_string() }
}

/// Reads a file. `wanted`: whether a column of this name is needed.
///
/// # Errors
/// If it cannot be read, or is no result of a sweep.
pub fn read(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Table, SweepError> {
    let (reader, schema) = open(path)?;
    let mut columns: Vec<(String, Cells)> = schema?.into_iter().map(|(name, kind)| (name, Cells::of(kind))).collect();
    let bad = |error: ParquetError| damaged(path, &error);
    for at in 0..reader.num_row_groups() {
        let group = reader.get_row_group(at).map_err(bad)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        for (place, (name, cells)) in columns.iter_mut().enumerate().filter(|(_, (name, _))| wanted(name)) {
            let column = group.get_column_reader(place).map_err(bad)?;
            let enough = match (column, cells) {
                (ColumnReader::Int64ColumnReader(mut column), Cells::Whole(cells)) => {
                    let before = cells.len();
                    column.read_records(rows, None, None, cells).map_err(bad)?;
                    cells.len() - before == rows
                }
                (ColumnReader::DoubleColumnReader(column), Cells::Number(cells)) => {
                    fill(column, rows, cells, Some).map_err(bad)?
                }
                (ColumnReader::ByteArrayColumnReader(column), Cells::Text(cells)) => {
                    fill(column, rows, cells, |text| text.as_utf8().ok().map(str::to_owned)).map_err(bad)?
                }
                _ => false,
            };
            if !enough {
                return Err(damaged(path, &format!("column {name} does not have {rows} cells")));
            }
        }
    }
    columns.retain(|(name, _)| wanted(name));
    Ok(Table { columns })
}

/// Reads cells that may be empty. False if there are not as many as there should be.
fn fill<D: DataType, T>(
    mut column: ColumnReaderImpl<D>,
    rows: usize,
    cells: &mut Vec<Option<T>>,
    cell: impl Fn(D::T) -> Option<T>,
) -> Result<bool, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    column.read_records(rows, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter();
    for level in &levels {
        cells.push(if *level == 1 { values.next().and_then(&cell) } else { None });
    }
    Ok(levels.len() == rows)
}

/// The file of a task's results.
pub fn part(folder: &Path, task: &Task) -> PathBuf {
    folder.join(PARTS).join(format!("{}{ENDING}", task.id))
}

/// Writes a task's results. They appear at once, or not at all.
///
/// # Errors
/// If they cannot be written.
pub fn put(folder: &Path, task: &Task, table: &Table) -> Result<(), SweepError> {
    let path = part(folder, task);
    let bytes = bytes(table).map_err(|error| damaged(&path, &error))?;
    whole(&path, |file| file.write_all(&bytes))
}

/// Writes a file beside its place, and moves it there when it is complete.
///
/// # Errors
/// If it cannot be written.
pub fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), SweepError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(SweepError::io(folder))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Hosts that share the folder may have processes of the same number; the random one differs.
    let random = RandomState::new().build_hasher().finish();
    name.push(format!("{UNFINISHED}{}-{random:016x}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = File::create_new(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.into_inner()?.sync_data()
    });
    let moved = written.and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        // What could not be finished is of no use; if it cannot be removed either, it is ignored.
        let _ = std::fs::remove_file(&beside);
    }
    moved.map_err(SweepError::io(path))
}

/// What the name of a file that is not finished has behind it, before the number of its process and
/// a random one.
const UNFINISHED: &str = ".unfinished-";

/// For how long nobody has written to a file that is taken for a leftover. It takes seconds to
/// write one; clocks of hosts may differ.
const LEFT_FOR: Duration = Duration::from_secs(6 * 3600);

/// The tasks that have results in a folder, by their ids. There are none if there is no folder yet.
///
/// # Errors
/// If the folder cannot be read.
pub fn there(folder: &Path) -> Result<HashSet<String>, SweepError> {
    let folder = folder.join(PARTS);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(SweepError::io(&folder)(error)),
    };
    let mut ids = HashSet::new();
    for entry in entries {
        let name = entry.map_err(SweepError::io(&folder))?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) {
            ids.insert(id.to_owned());
        }
    }
    Ok(ids)
}

/// Removes what killed processes have left unfinished hours ago. What is younger may be what
/// another driver of the same folder is at.
pub fn sweep_up(folder: &Path) {
    let now = SystemTime::now();
    let is_old = |entry: &std::fs::DirEntry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        written.and_then(|written| now.duration_since(written).ok()).is_some_and(|age| age > LEFT_FOR)
    };
    for folder in [folder.join(PARTS), folder.to_owned()] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.contains(UNFINISHED)) && is_old(&entry) {
                // It is a leftover either way.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let text = |words: &[Option<&str>]| Cells::Text(words.iter().map(|word| word.map(str::to_owned)).collect());
        Table {
            columns: vec![
                ("rate".into(), text(&[Some("2Mbit/s"), Some("4Mbit/s"), Some("ä\"b\n")])),
                ("seed".into(), Cells::Whole(vec![1, -1, i64::MAX])),
                ("error".into(), text(&[None, Some("no"), None])),
                ("voice.p99".into(), Cells::Number(vec![Some(0.1), None, Some(-1.5e300)])),
            ],
        }
    }

    #[test]
    fn several_may_write_the_same_file() {
        let folder = std::env::temp_dir().join(format!("altq-sweep-same-{}", std::process::id()));
        let path = folder.join("table.csv");
        // As a process of the same number on another host: it begins while this one is not done.
        whole(&path, |file| {
            whole(&path, |other| other.write_all(b"other")).map_err(std::io::Error::other)?;
            sweep_up(&folder);
            file.write_all(b"own")
        })
        .unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"own");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_written_is_read_again_and_has_the_same_bytes() {
        let folder = std::env::temp_dir().join(format!("altq-sweep-store-{}", std::process::id()));
        let task = Task { id: "0123".into(), pieces: Vec::new() };
        put(&folder, &task, &table()).unwrap();
        let first = std::fs::read(part(&folder, &task)).unwrap();
        assert_eq!(read(&part(&folder, &task), |_| true).unwrap(), table());
        assert_eq!(schema(&part(&folder, &task)).unwrap(), table().schema());
        let some = read(&part(&folder, &task), |name| name == "voice.p99").unwrap();
        assert_eq!(some.columns.len(), 1);
        put(&folder, &task, &table()).unwrap();
        assert_eq!(std::fs::read(part(&folder, &task)).unwrap(), first);
        assert_eq!(there(&folder).unwrap(), HashSet::from(["0123".to_owned()]));
        // What a killed process leaves is no result, and is removed once nobody can be at it.
        let unfinished = folder.join("parts/4567.parquet.unfinished-1-0123456789abcdef");
        std::fs::write(&unfinished, "PAR1").unwrap();
        assert_eq!(there(&folder).unwrap().len(), 1);
        sweep_up(&folder);
        assert!(unfinished.exists());
        let hours_ago = SystemTime::now() - Duration::from_secs(7 * 3600);
        File::options().write(true).open(&unfinished).unwrap().set_modified(hours_ago).unwrap();
        sweep_up(&folder);
        assert!(!unfinished.exists());
        std::fs::write(part(&folder, &task), "nothing").unwrap();
        let error = read(&part(&folder, &task), |_| true).unwrap_err().to_string();
        assert!(error.ends_with("; remove it and run again") && error.contains("0123.parquet"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(there(&folder).unwrap().is_empty());
    }
}
