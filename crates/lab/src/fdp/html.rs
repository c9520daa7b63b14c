impl super::report::FdpReport {
    /// x
    #[must_use]
    pub fn html(&self) -> String { String::new() }
}
