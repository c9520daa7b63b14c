//! The token that a client has to have: of a pool over TCP, of a live page. It is compared in a time that does not
//! depend on where it differs.

use std::io::{self, Write};
use std::path::Path;

use data_encoding::HEXLOWER;
use esker_base::files;

use crate::error::{Result, ServeError};

/// Bytes of a new token, as twice as many hexadecimal digits.
const BYTES: usize = 32;
/// The shortest token that is taken from a file.
const LEAST: usize = 32;
/// The longest.
const MOST: u64 = 1024;

/// A token.
pub struct Token(Vec<u8>);

impl Token {
    /// A new token.
    ///
    /// # Errors
    /// The system's, when it has no randomness to give.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; BYTES];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(Token(HEXLOWER.encode(&bytes).into_bytes()))
    }

    /// The token's text, for its owner.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Reads the token from a file that its owner alone can read; makes one where there is no file.
    pub(crate) fn load(path: &Path) -> Result<Token> {
        let failed = |error| ServeError::file(path, error, "choose another path with --api-token");
        let text = match files::read_private(path, MOST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Token::random().map_err(failed)?;
                let mut file = files::create_private(path).map_err(failed)?;
                writeln!(file, "{}", token.text()).map_err(failed)?;
                return Ok(token);
            }
            read => read.map_err(failed)?,
        };
        let text = text.trim();
        if text.len() < LEAST || text.contains(char::is_whitespace) {
            let why = format!(
                "{}: a token is one word of {LEAST} characters or more; remove the file, and one is made",
                path.display()
            );
            return Err(ServeError::invalid(why));
        }
        Ok(Token(text.as_bytes().to_vec()))
    }

    /// Whether a header's value has it: `Bearer TOKEN`.
    pub(crate) fn is_in(&self, header: &str) -> bool {
        let Some(said) = header.strip_prefix("Bearer ") else { return false };
        self.is(said.trim())
    }

    /// Whether somebody has said it.
    #[must_use]
    pub fn is(&self, said: &str) -> bool {
        let said = said.as_bytes();
        // All of the token is looked at, whatever was said.
        let mut differs = u8::from(said.len() != self.0.len());
        for (index, byte) in self.0.iter().enumerate() {
            differs |= byte ^ said.get(index).copied().unwrap_or(!byte);
        }
        std::hint::black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_told_from_others() {
        let token = Token(b"0123456789abcdef0123456789abcdef".to_vec());
        assert!(token.is_in("Bearer 0123456789abcdef0123456789abcdef"));
        for other in [
            "",
            "Bearer ",
            "0123456789abcdef0123456789abcdef",
            "Bearer 0123456789abcdef0123456789abcdee",
            "Bearer 0123456789abcdef0123456789abcdef0",
        ] {
            assert!(!token.is_in(other), "{other}");
        }
    }
}
