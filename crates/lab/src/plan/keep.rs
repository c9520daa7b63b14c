//! Results by their inputs: a line of a plan that changes costs only its own runs.
//!
//! A result is a JSON document with the checksum of its inputs, which is its key, and one of its figures. One that is
//! damaged, or of other inputs, is not used, and the reason is told.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::inputs::Inputs;
use super::measured::MeasuredCase;
use crate::LabError;

/// The name of the form.
const FORMAT: &str = "esker-plan-result/2";

/// Where results are kept.
pub trait Shelf {
    /// The document with a key, if there is one.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    fn get(&mut self, key: &str) -> Result<Option<String>, LabError>;

    /// Keeps a document under a key, in place of an older one.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put(&mut self, key: &str, document: &str) -> Result<(), LabError>;

    /// Where a document lies, for people.
    fn place(&self, key: &str) -> String;
}

/// The form of a document.
#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    key: String,
    version: String,
    /// All inputs, for people.
    inputs: String,
    /// The checksum of the result.
    checksum: String,
    result: Kept,
}

/// The part of a run that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) measured: MeasuredCase,
    /// How long it took to find out, in seconds of this machine.
    pub(super) took_s: f64,
}

/// The find under a key.
pub(super) enum Found {
    Kept(Box<Kept>),
    Nothing,
    /// It is not to be used, and why.
    Bad(String),
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a run: a checksum of everything that its figures depend on.
pub(super) fn key(inputs: &Inputs, version: &str) -> String {
    checksum(&format!("{FORMAT}\n{version}\n{}", inputs.canonical()))
}

/// Looks for a result.
pub(super) fn find(shelf: &mut dyn Shelf, key: &str) -> Result<Found, LabError> {
    let Some(text) = shelf.get(key)? else { return Ok(Found::Nothing) };
    let bad =
        |why: &str| Ok(Found::Bad(format!("{}: {why}: it is computed again", shelf.place(key))));
    let Ok(document) = serde_json::from_str::<Document>(&text) else {
        return bad("it is no result, or a damaged one");
    };
    if document.format != FORMAT || document.key != key {
        return bad("it is the result of something else");
    }
    match checksum(&figures(&document.result)) == document.checksum {
        true => Ok(Found::Kept(Box::new(document.result))),
        false => bad("its figures are damaged"),
    }
}

/// Keeps a result.
pub(super) fn keep(
    shelf: &mut dyn Shelf,
    key: &str,
    version: &str,
    inputs: &Inputs,
    result: &Kept,
) -> Result<(), LabError> {
    let document = Document {
        format: FORMAT.to_owned(),
        key: key.to_owned(),
        version: version.to_owned(),
        inputs: inputs.canonical(),
        checksum: checksum(&figures(result)),
        result: result.clone(),
    };
    let text = serde_json::to_string_pretty(&document).expect("every field has a JSON form");
    shelf.put(key, &text)
}

fn figures(result: &Kept) -> String {
    serde_json::to_string(result).expect("every field has a JSON form")
}
