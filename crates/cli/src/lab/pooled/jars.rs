//! The Java programs: Maven resolves Cassandra, YCSB and a driver, and compiles the database class, once.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::lab::programs::{Run, call, folder, write, wrong};

const SERVER_POM: &str = include_str!("../../../assets/pooled/server/pom.xml");
const CLIENT_POM: &str = include_str!("../../../assets/pooled/client/pom.xml");
const PACKAGE: &str = "src/main/java/io/esker/pooled";

/// The source of a class, which this program carries.
macro_rules! class {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(
                "../../../assets/pooled/client/src/main/java/io/esker/pooled/",
                $name
            )),
        )
    };
}

const CLASSES: [(&str, &str); 7] = [
    class!("CqlDatabase.java"),
    class!("Figures.java"),
    class!("Ledger.java"),
    class!("Schema.java"),
    class!("Sessions.java"),
    class!("Tool.java"),
    class!("Values.java"),
];

/// Class paths of the two sides.
pub(super) struct Jars {
    /// Of a node.
    pub(super) server: String,
    /// Of the client's JVM.
    pub(super) client: String,
}

impl Jars {
    /// Builds them in a folder, unless they are there and of the same sources.
    pub(super) fn build(at: &Path) -> Run<Jars> {
        let server = side(&at.join("server"), SERVER_POM, &[])?;
        let client = side(&at.join("client"), CLIENT_POM, &CLASSES)?;
        let classes = at.join("client/target/classes");
        Ok(Jars { server, client: format!("{}:{client}", classes.display()) })
    }

    /// The agent by which Cassandra measures its memory.
    pub(super) fn agent(&self) -> Run<&str> {
        let found = self.server.split(':').find(|one| one.contains("/jamm-"));
        found.ok_or_else(|| {
            wrong("Maven", "Cassandra's class path has no jamm: remove --work's folder `jars`")
        })
    }
}

/// Builds one side, and gives the class path of its dependencies.
fn side(at: &Path, pom: &str, classes: &[(&str, &str)]) -> Run<String> {
    let source = folder(&at.join(PACKAGE))?;
    let files = classes.iter().map(|(name, text)| (source.join(name), *text));
    let files: Vec<_> = files.chain([(at.join("pom.xml"), pom)]).collect();
    let paths = at.join("classpath");
    let is_same = |(path, text): &(std::path::PathBuf, &str)| {
        fs::read_to_string(path).is_ok_and(|old| old == *text)
    };
    if !(paths.exists() && files.iter().all(is_same)) {
        for (path, text) in &files {
            write(path, text)?;
        }
        let mut command = Command::new("mvn");
        command.args(["-q", "-B", "-f"]).arg(at.join("pom.xml"));
        if !classes.is_empty() {
            command.arg("compile");
        }
        // Elsewhere first: a build that ends early leaves no class path.
        let new = at.join("classpath.new");
        command
            .arg("dependency:build-classpath")
            .arg(format!("-Dmdep.outputFile={}", new.display()));
        call("mvn", &mut command)?;
        fs::rename(&new, &paths)
            .map_err(|error| wrong("mvn", format!("{}: {error}", new.display())))?;
    }
    let text = fs::read_to_string(&paths)
        .map_err(|error| wrong("mvn", format!("{}: {error}", paths.display())))?;
    Ok(text.trim().to_owned())
}
