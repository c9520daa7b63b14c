//! The devices of a trace: numbers for their names, from 0 in the order in which they appear.

use std::collections::BTreeMap;

use crate::request::MAX_DEVICES;

/// Names of devices and their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    numbers: BTreeMap<Vec<u8>, u32>,
    names: Vec<String>,
    last: Option<(Vec<u8>, u32)>,
}

impl Names {
    /// The number of a name.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                if number >= MAX_DEVICES {
                    return Err(format!("more than {MAX_DEVICES} devices"));
                }
                self.numbers.insert(name.to_vec(), number);
                self.names.push(String::from_utf8_lossy(name).into_owned());
                number
            }
        };
        self.last = Some((name.to_vec(), number));
        Ok(number)
    }

    /// The names, in the order of their numbers.
    pub(crate) fn all(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_order_of_appearance() {
        let mut names = Names::default();
        let numbers: Vec<u32> =
            ["hm.1", "hm.0", "hm.1", "prn.0"].map(|n| names.number(n.as_bytes()).unwrap()).into();
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(names.all(), ["hm.1", "hm.0", "prn.0"]);
    }
}
