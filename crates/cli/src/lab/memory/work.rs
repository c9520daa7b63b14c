//! Each program's command, and what it needs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use esker_base::files;
use esker_lab::memory::options::BUFFER_POOL_MIB;
use esker_lab::memory::program::Program;

use super::inputs;
use crate::lab::programs::{Run, wrong};

const AWK: &str = include_str!("../../../../../tests/pager/workloads/work.awk");
const PANDAS: &str = include_str!("../../../../../tests/pager/workloads/pandas_work.py");
const POLARS: &str = include_str!("../../../../../tests/pager/workloads/polars_work.py");
const SQLITE: &str = include_str!("../../../../../tests/pager/workloads/sqlite_work.py");
const R: &str = include_str!("../../../../../tests/pager/workloads/work.R");
const BATCH: &str = include_str!("../../../../../tests/pager/workloads/Work.java");
const CACHE: &str = include_str!("../../../assets/memory/Cache.java");
const DUCKDB: &str = include_str!("../../../assets/duckdb.py");
const MARIADB: &str = include_str!("../../../assets/memory/mariadb.sh");

const LINES: u64 = 1_600_000;
const KEYED: u64 = 180_000;
const RECORDS: u64 = 160_000;
const DUCKDB_ROWS: &str = "2000000";
/// A short run has half of these.
const QUICK: u64 = 2;
/// Arguments of both programs in Java: entries and operations of the cache, entries of the map.
const CACHE_SIZE: [&str; 2] = ["180000", "400000"];
const BATCH_SIZE: &str = "900000";

/// The programs of a study, as far as they are there.
pub(super) struct Works {
    pub(super) folder: PathBuf,
    pub(super) python: PathBuf,
    pub(super) seed: u64,
    pub(super) is_quick: bool,
}

impl Works {
    /// Makes what a program needs. Returns the package that is missing, if one is.
    pub(super) fn prepare(&mut self, program: Program) -> Run<Option<String>> {
        if let Some(package) = self.missing(program) {
            return Ok(Some(package));
        }
        self.make(program).map_err(|error| wrong(program.name(), error))?;
        match program {
            Program::JavaCache | Program::JavaBatch => {
                let file = if program == Program::JavaCache { "Cache.java" } else { "Work.java" };
                self.call(program, Command::new("javac").arg("-d").arg(&self.folder).arg(file))?;
            }
            Program::Mariadb => self.call(program, &mut self.mariadb("prepare"))?,
            _ => {}
        }
        Ok(None)
    }

    /// Makes what each run of a program needs anew.
    pub(super) fn renew(&self, program: Program) -> Run {
        match program {
            Program::Mariadb => self.call(program, &mut self.mariadb("renew")),
            _ => Ok(()),
        }
    }

    fn missing(&mut self, program: Program) -> Option<String> {
        let (tools, package): (&[&str], &str) = match program {
            Program::Sort => (&["sort"], "coreutils"),
            Program::Awk => (&["mawk"], "mawk"),
            Program::Jq => (&["jq"], "jq"),
            Program::R => (&["Rscript"], "r-base-core"),
            Program::Redis => (&["redis-server"], "redis-server"),
            Program::JavaCache | Program::JavaBatch => {
                (&["java", "javac"], "openjdk-17-jdk-headless")
            }
            Program::Mariadb => (&["mariadbd", "mariadb-install-db", "mariadb"], "mariadb-server"),
            Program::Pandas => return self.lacks("pandas"),
            Program::Polars => return self.lacks("polars"),
            Program::Duckdb => return self.lacks("duckdb"),
            Program::Sqlite => return self.lacks("sqlite3"),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there =
            |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
        let missing = tools.iter().find(|tool| !is_there(tool))?;
        Some(format!("there is no {missing}: install Debian's package {package}"))
    }

    /// Why Python has no such module; else the program itself is taken from now on, and no script in front of it.
    fn lacks(&mut self, module: &str) -> Option<String> {
        let line = format!("import sys, {module}; print(sys.executable)");
        let output = Command::new(&self.python).args(["-c", &line]).stdin(Stdio::null()).output();
        let found = output.ok().filter(|output| output.status.success());
        match found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) {
            Some(path) if !path.is_empty() => self.python = PathBuf::from(path),
            _ => {
                return Some(format!(
                    "{} has no {module}: `python3 -m venv v && v/bin/pip install {module}`, and --python v/bin/python",
                    self.python.display()
                ));
            }
        }
        None
    }

    fn make(&self, program: Program) -> io::Result<()> {
        let file = |name: &str| self.folder.join(name);
        let write = |name: &str, text: &str| files::write(&file(name), text);
        let count = |full: u64| if self.is_quick { full / QUICK } else { full };
        match program {
            Program::Sort => inputs::lines(&file("lines.txt"), count(LINES), self.seed),
            Program::Awk => {
                write("work.awk", AWK)?;
                inputs::keys(&file("keys.txt"), count(KEYED), self.seed)
            }
            Program::Jq => inputs::records(&file("records.json"), count(RECORDS), self.seed),
            Program::Pandas => write("pandas_work.py", PANDAS),
            Program::Polars => write("polars_work.py", POLARS),
            Program::Sqlite => write("sqlite_work.py", SQLITE),
            Program::Duckdb => write("duckdb_work.py", DUCKDB),
            Program::R => write("work.R", R),
            Program::JavaBatch => write("Work.java", BATCH),
            Program::JavaCache => write("Cache.java", CACHE),
            Program::Mariadb => write("mariadb.sh", MARIADB),
            Program::Redis => files::create_dir_all(&file("redis")),
        }
    }

    /// The command line of a program, to be run in the folder.
    pub(super) fn line(&self, program: Program) -> Vec<OsString> {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let python = |script: &[&str]| {
            let script = script.iter().map(OsString::from);
            std::iter::once(self.python.clone().into_os_string()).chain(script).collect()
        };
        match program {
            Program::Sort => words("sort -S 300M --parallel=2 lines.txt"),
            Program::Awk => words("mawk -f work.awk keys.txt"),
            Program::Jq => {
                let middle = if self.is_quick { RECORDS / QUICK / 2 } else { RECORDS / 2 };
                let query = format!("([.[].id]|sort|.[{middle}]),(map(.v|add)|add)");
                [OsString::from("jq"), "-c".into(), query.into(), "records.json".into()].into()
            }
            Program::Pandas => python(&["pandas_work.py"]),
            Program::Polars => python(&["polars_work.py"]),
            Program::Sqlite => python(&["sqlite_work.py"]),
            Program::Duckdb => python(&["duckdb_work.py", DUCKDB_ROWS]),
            Program::R => words("Rscript --vanilla work.R"),
            Program::Redis => {
                let mut line = words("redis-server --port 0 --unixsocket");
                line.push(socket(&self.folder).into_os_string());
                line.extend(["--save".into(), OsString::new(), "--dir".into()]);
                line.push(self.folder.join("redis").into_os_string());
                line
            }
            Program::JavaCache => {
                let [entries, operations] = CACHE_SIZE;
                words(&format!(
                    "java -XX:+UseSerialGC -Xms320m -Xmx320m -Xmn24m -cp . Cache {entries} {operations}"
                ))
            }
            Program::JavaBatch => {
                words(&format!("java -XX:+UseG1GC -Xms64m -Xmx640m -cp . Work {BATCH_SIZE}"))
            }
            Program::Mariadb => words(&format!("sh mariadb.sh run {BUFFER_POOL_MIB}M")),
        }
    }

    fn mariadb(&self, step: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["mariadb.sh", step]).arg(format!("{BUFFER_POOL_MIB}M"));
        command
    }

    /// Runs a command in the folder, which has to succeed.
    fn call(&self, program: Program, command: &mut Command) -> Run {
        let output = command.current_dir(&self.folder).stdin(Stdio::null()).output();
        let output = output.map_err(|error| wrong(program.name(), error))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(wrong(program.name(), String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

/// Redis's socket.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}
