//! Zstandard, which is C: a build without the feature `zstd` has none, and refuses the KVDBs that need it when it opens
//! them.

#[cfg(feature = "zstd")]
pub(super) use with::{Compress, Decompress};
#[cfg(not(feature = "zstd"))]
pub(super) use without::{Compress, Decompress};

#[cfg(feature = "zstd")]
mod with {
    use esker_base::sync::Mutex;
    use zstd::bulk::{Compressor, Decompressor};

    /// The fastest level that Zstandard calls its own: the next ones save a hundredth more.
    const LEVEL: i32 = 1;
    /// Contexts that are kept, about 100 KiB each.
    const CONTEXTS: usize = 16;

    /// Compresses values; its context is made when the first one comes.
    #[derive(Default)]
    pub(in super::super) struct Compress(Option<Compressor<'static>>);

    impl Compress {
        /// Writes the value to `room`; its size, or none when that failed.
        pub(in super::super) fn compress(
            &mut self,
            value: &[u8],
            room: &mut [u8],
        ) -> Option<usize> {
            if self.0.is_none() {
                self.0 = Compressor::new(LEVEL).ok();
            }
            self.0.as_mut()?.compress_to_buffer(value, room).ok()
        }
    }

    /// Gets values back, with the contexts of the threads that do so at the same time.
    #[derive(Default)]
    pub(in super::super) struct Decompress(Mutex<Vec<Decompressor<'static>>>);

    impl Decompress {
        /// Writes the value to `out`, and returns its size.
        pub(in super::super) fn decompress(
            &self,
            encoded: &[u8],
            out: &mut [u8],
        ) -> std::io::Result<usize> {
            let pooled = self.0.lock().pop();
            let mut context = match pooled {
                Some(context) => context,
                None => Decompressor::new()?,
            };
            let size = context.decompress_to_buffer(encoded, out)?;
            let mut pool = self.0.lock();
            if pool.len() < CONTEXTS {
                pool.push(context);
            }
            Ok(size)
        }
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    #[derive(Default)]
    pub(in super::super) struct Compress;

    impl Compress {
        pub(in super::super) fn compress(&mut self, _: &[u8], _: &mut [u8]) -> Option<usize> {
            None
        }
    }

    #[derive(Default)]
    pub(in super::super) struct Decompress;

    impl Decompress {
        pub(in super::super) fn decompress(
            &self,
            _: &[u8],
            _: &mut [u8],
        ) -> std::io::Result<usize> {
            Err(std::io::Error::other("this build of esker-kv is without its feature `zstd`"))
        }
    }
}
