//! A route: its description, and how it runs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Result, ServeError};
use crate::pool::answer::WouldView;
use crate::pool::opening::{Found, Opened};
use crate::pool::operations::Goal;
use crate::pool::request::Request;
use crate::pool::served::Served;

/// The outcome of a change.
pub(crate) enum Outcome<T> {
    /// It was a rehearsal.
    Would(String),
    /// It was made, and is at its end when the goal is reached.
    Did(T, Goal),
}

/// A request as a route sees it.
pub(crate) struct Call<'a> {
    /// The text at each name of the path.
    pub(super) names: Vec<String>,
    pub(super) queries: BTreeMap<&'a str, &'a str>,
    /// The client has said which operation it is, so it may be a repetition.
    pub(super) has_key: bool,
    /// All requests there are.
    pub(super) known: &'a [Route],
    /// The device that was opened for it.
    pub(super) opened: RefCell<Option<Opened>>,
}

impl Call<'_> {
    pub(super) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// The device that was opened for it.
    pub(super) fn opened(&self) -> Found {
        let mut opened = self.opened.borrow_mut();
        opened.as_mut().expect("a route that opens a device").take()
    }
}

pub(super) enum Ran {
    Answer(Value),
    Did(Value, Goal),
}

pub(super) type Run = Box<dyn Fn(&Served, &Call<'_>, Value) -> Result<Ran> + Send + Sync>;

/// Opens the device of a change, before its turn.
pub(super) type Open = Box<dyn Fn(&Served, &Call<'_>, &Value) -> Result<Opened> + Send + Sync>;

/// Tells the form of a body.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A request that is known.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With names in braces.
    pub(crate) path: &'static str,
    /// The name of the operation.
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
    /// Of a change.
    pub(crate) request: Option<Describe>,
    pub(crate) answer: Describe,
    /// Names and meanings of queries behind a question mark.
    pub(crate) queries: &'static [(&'static str, &'static str)],
    /// Whether hosts may find something else after it.
    pub(super) exports: bool,
    /// Of a change with a device.
    pub(super) open: Option<Open>,
    pub(super) run: Run,
}

fn parsed<B: DeserializeOwned>(body: Value) -> Result<B> {
    let body = if body.is_null() { json!({}) } else { body };
    serde_json::from_value(body)
        .map_err(|error| ServeError::invalid(format!("the request's body: {error}")))
}

fn as_json(view: &impl Serialize) -> Result<Value> {
    serde_json::to_value(view).map_err(|error| ServeError::invalid(error.to_string()))
}

impl Route {
    /// A question.
    pub(super) fn look<T: Serialize + JsonSchema + 'static>(
        path: &'static str,
        id: &'static str,
        about: &'static str,
        run: fn(&Served, &Call<'_>) -> Result<T>,
    ) -> Route {
        let run: Run =
            Box::new(move |served, call, _| as_json(&run(served, call)?).map(Ran::Answer));
        let answer: Describe = |generator| generator.subschema_for::<T>();
        Route {
            method: "GET",
            path,
            id,
            about,
            request: None,
            answer,
            queries: &[],
            exports: false,
            open: None,
            run,
        }
    }

    /// A change.
    pub(super) fn change<B, T>(
        (method, path): (&'static str, &'static str),
        id: &'static str,
        about: &'static str,
        run: fn(&Served, &Call<'_>, B) -> Result<Outcome<T>>,
    ) -> Route
    where
        B: Request + DeserializeOwned + JsonSchema + 'static,
        T: Serialize + JsonSchema + 'static,
    {
        let run: Run = Box::new(move |served, call, body| {
            let body: B = parsed(body)?;
            let is_rehearsal = body.is_dry_run();
            match run(served, call, body)? {
                Outcome::Would(would) => {
                    debug_assert!(is_rehearsal);
                    as_json(&WouldView { dry_run: true, would }).map(Ran::Answer)
                }
                Outcome::Did(view, goal) => Ok(Ran::Did(as_json(&view)?, goal)),
            }
        });
        let request: Option<Describe> = Some(|generator| generator.subschema_for::<B>());
        let answer: Describe = |generator| generator.subschema_for::<T>();
        let (queries, exports, open): (&[_], _, _) = (&[], true, None);
        Route { method, path, id, about, request, answer, queries, exports, open, run }
    }

    /// The same change, for which a device is opened before its turn.
    pub(super) fn opening<B: DeserializeOwned + 'static>(
        self,
        open: fn(&Served, &Call<'_>, &B) -> Result<Opened>,
    ) -> Route {
        let open: Open =
            Box::new(move |served, call, body| open(served, call, &parsed(body.clone())?));
        Route { open: Some(open), ..self }
    }

    /// The same change, which no host sees: with many volumes, looking through what is exported takes longer.
    pub(super) fn unseen(self) -> Route {
        Route { exports: false, ..self }
    }

    pub(super) fn with(self, queries: &'static [(&'static str, &'static str)]) -> Route {
        Route { queries, ..self }
    }
}
