//! The methods of a queue pair over another one that only pass a call on.

/// Writes methods of an `impl QueuePair` that pass the call on to the queue pair in a field:
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
