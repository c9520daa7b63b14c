//! Makes the page of `esker lab pooled` from its JSON on standard input: the browser's checks have it without a machine
//! that runs Cassandra.

use std::io::Read as _;

use esker_lab::Report;
use esker_lab::pooled::Pooled;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let report = Report::<Pooled>::of(serde_json::from_str(&text)?);
    print!("{}", report.page().html());
    Ok(())
}
