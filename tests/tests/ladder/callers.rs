//! Public functions that nobody calls.
//!
//! Read as text: a function counts as called where its name stands anywhere else, in products, tests, benches,
//! examples, or a macro. So a name that several have (`new`) is never found.

use std::collections::BTreeSet;

use super::source;

/// The words of sources, without comments and literals, but for names where functions are defined.
pub(crate) struct Words(BTreeSet<String>);

impl Words {
    /// Of some files' contents.
    pub(crate) fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Words {
        let mut words = BTreeSet::new();
        for text in texts {
            let code = source::blank(text);
            let mut last = "";
            for word in code.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
                if last != "fn" && !word.is_empty() && !words.contains(word) {
                    words.insert(word.to_owned());
                }
                if !word.is_empty() {
                    last = word;
                }
            }
        }
        Words(words)
    }

    /// The public functions in a file that have no caller, each with its line.
    pub(crate) fn uncalled(&self, name: &str, text: &str) -> Vec<String> {
        let code = source::code(text);
        let lonely = (1..).zip(code.lines()).filter_map(|(number, line)| {
            let function = public_function(line.trim())?;
            let finding = || format!("{name}:{number}: nothing calls {function}");
            (!self.0.contains(function)).then(finding)
        });
        lonely.collect()
    }
}

/// The function that a line of code makes public. One with an ABI of its own is called by programs of others.
fn public_function(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    while let Some(after) =
        ["const ", "unsafe ", "async "].iter().find_map(|q| rest.strip_prefix(q))
    {
        rest = after;
    }
    let name = rest.strip_prefix("fn ")?.split(|c: char| !(c.is_alphanumeric() || c == '_')).next();
    name.filter(|name| !name.is_empty())
}
