//! The methods of a device or a queue pair over another one that only pass a call on.

/// Writes methods of an `impl Device` or an `impl QueuePair` that pass the call on to the one in a field:
///
/// ```
/// use std::collections::VecDeque;
///
/// use esker_device::{Command, DeviceError, QueuePair, forward};
///
/// /// Counts submitted commands.
/// struct Counting {
///     inner: Box<dyn QueuePair>,
///     submitted: usize,
/// }
///
/// impl QueuePair for Counting {
///     fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
///         let taken = self.inner.submit(commands)?;
///         self.submitted += taken;
///         Ok(taken)
///     }
///
///     forward!(inner: poll, wait, in_flight);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($field:tt: $($method:ident),+) => {
        $($crate::forward!(@ $method $field);)+
    };
    (@ name $field:tt) => {
        fn name(&self) -> &str {
            self.$field.name()
        }
    };
    (@ geometry $field:tt) => {
        fn geometry(&self) -> $crate::Geometry {
            self.$field.geometry()
        }
    };
    (@ discards_zero $field:tt) => {
        fn discards_zero(&self) -> bool {
            self.$field.discards_zero()
        }
    };
    (@ usable_bytes $field:tt) => {
        fn usable_bytes(&self) -> ::std::option::Option<u64> {
            self.$field.usable_bytes()
        }
    };
    (@ left_bytes $field:tt) => {
        fn left_bytes(&self) -> ::std::option::Option<u64> {
            self.$field.left_bytes()
        }
    };
    (@ allocate $field:tt) => {
        fn allocate(
            &self,
            lba: ::esker_base::Lba,
            count: ::esker_base::LbaCount,
        ) -> ::std::result::Result<bool, $crate::DeviceError> {
            self.$field.allocate(lba, count)
        }
    };
    (@ identity $field:tt) => {
        fn identity(&self) -> ::std::option::Option<$crate::Identity> {
            self.$field.identity()
        }
    };
    (@ is_prompt $field:tt) => {
        fn is_prompt(&self) -> bool {
            self.$field.is_prompt()
        }
    };
    (@ stats $field:tt) => {
        fn stats(&self) -> $crate::DeviceStats {
            self.$field.stats()
        }
    };
    (@ remarks $field:tt) => {
        fn remarks(&self) -> ::std::vec::Vec<::std::string::String> {
            self.$field.remarks()
        }
    };
    (@ data_placement $field:tt) => {
        fn data_placement(&self) -> ::std::option::Option<&dyn $crate::DataPlacement> {
            self.$field.data_placement()
        }
    };
    (@ submit $field:tt) => {
        fn submit(
            &mut self,
            commands: &mut ::std::collections::VecDeque<$crate::Command>,
        ) -> ::std::result::Result<usize, $crate::DeviceError> {
            self.$field.submit(commands)
        }
    };
    (@ poll $field:tt) => {
        fn poll(
            &mut self,
            done: &mut ::std::vec::Vec<$crate::Completion>,
        ) -> ::std::result::Result<usize, $crate::DeviceError> {
            self.$field.poll(done)
        }
    };
    (@ wait $field:tt) => {
        fn wait(
            &mut self,
            done: &mut ::std::vec::Vec<$crate::Completion>,
            timeout: ::std::option::Option<::std::time::Duration>,
        ) -> ::std::result::Result<usize, $crate::DeviceError> {
            self.$field.wait(done, timeout)
        }
    };
    (@ in_flight $field:tt) => {
        fn in_flight(&self) -> usize {
            self.$field.in_flight()
        }
    };
}
