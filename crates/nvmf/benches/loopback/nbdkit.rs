//! `nbdkit` with its memory plugin on one thread, and `qemu-img bench` as its client.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use esker_base::Clock;

use super::process::{cpu_us, on_core};
use super::{Failure, Figure, Load};

fn answers(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether both programs are installed.
pub(crate) fn is_there() -> bool {
    answers("nbdkit") && answers("qemu-img")
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves and loads for about so many seconds.
pub(crate) fn run(load: &Load, seconds: u64) -> Result<(Figure, f64), Failure> {
    // A free port, free again when nbdkit takes it.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut server = on_core(0, "nbdkit");
    server.args(["-f", "-t", "1", "-i", "127.0.0.1", "-p", &port.to_string(), "memory", "256M"]);
    let server = Running(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let clock = Clock::real();
    let start = clock.now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if clock.now().since(start) > Duration::from_secs(10) {
            return Err("nbdkit does not listen".into());
        }
        clock.sleep(Duration::from_millis(20));
    }
    bench(port, load, 65_536, &["-w"])?; // memory that was never written is not there to be read
    let calibration = 20_000;
    let took = bench(port, load, calibration, &[])?;
    let count = (calibration as f64 / took * seconds as f64).round();
    let before = cpu_us(&server.0)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small whole number
    let took = bench(port, load, count as u64, &[])?;
    let figure = Figure { rate: count / took, p50_us: took / count * 1e6 * load.depth as f64 };
    Ok((figure, (cpu_us(&server.0)? - before) / count))
}

/// Seconds that so many operations took.
fn bench(port: u16, load: &Load, count: u64, more: &[&str]) -> Result<f64, Failure> {
    let mut client = on_core(1, "qemu-img");
    client
        .args(["bench", "-f", "raw", "-c", &count.to_string(), "-d", &load.depth.to_string()])
        .args(["-s", &load.bytes.to_string(), "-S", &load.bytes.to_string()])
        .args(more)
        .arg(format!("nbd://127.0.0.1:{port}"))
        .stdout(Stdio::piped());
    let client = client.spawn()?;
    let output = client.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text
        .lines()
        .find_map(|line| line.strip_prefix("Run completed in ")?.strip_suffix(" seconds."))
        .ok_or_else(|| format!("qemu-img bench printed something else: {text}"))?;
    Ok(seconds.parse()?)
}
