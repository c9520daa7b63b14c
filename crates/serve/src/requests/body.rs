//! Bodies of requests that change something. Unknown fields are refused.

/// A body that can be a rehearsal.
pub(crate) trait Request {
    /// Whether nothing is to be changed.
    fn is_dry_run(&self) -> bool;
}

/// Defines bodies, each with the field `dry_run`.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
            /// Say what would be done, and change nothing.
            #[serde(default)]
            pub(crate) dry_run: bool,
        }

        impl $crate::requests::body::Request for $name {
            fn is_dry_run(&self) -> bool {
                self.dry_run
            }
        }
    )*};
}
pub(crate) use requests;

requests! {
    /// Nothing is to be said.
    Nothing {}
}
