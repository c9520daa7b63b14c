//! From a specification in one line to an open device.
