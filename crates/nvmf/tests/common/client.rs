//! A host that sends exactly the commands it is told to, one queue for each connection.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use esker_base::AlignedBuf;
use esker_nvmf::conn::{HostConnection, HostEvent, HostSettings, Payload};
use esker_nvmf::wire::capsule::{Cqe, Sqe};
use esker_nvmf::wire::command::admin;
use esker_nvmf::wire::fabrics::{
    CC, CC_ENABLE, CNTLID_ANY, CONNECT, Connect, ConnectData, OPCODE, PROPERTY_SET, Property,
};
use esker_nvmf::wire::status::Status;
use esker_nvmf::wire::{feature, padded};

/// Socket of the client: anything it can read and write.
pub(crate) trait Bytes: Read + Write {}
impl<T: Read + Write> Bytes for T {}

/// One queue.
pub(crate) struct Client {
    stream: Box<dyn Bytes>,
    wire: HostConnection,
    finished: Vec<(u16, Cqe, Payload)>,
}

/// Names of the host that connects, and of its target.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) host_nqn: String,
    pub(crate) host_id: [u8; 16],
    pub(crate) nqn: String,
}

impl Identity {
    /// Host number `n`.
    pub(crate) fn new(n: u8) -> Identity {
        let host_nqn = format!("nqn.2026-01.io.esker:host{n}");
        Identity { host_nqn, host_id: [n; 16], nqn: super::NQN.to_owned() }
    }
}

impl Client {
    /// A queue; `Err` is the status of Connect.
    pub(crate) fn connect(
        at: SocketAddr,
        who: &Identity,
        qid: u16,
        cntlid: u16,
    ) -> Result<(Client, u16), Status> {
        let connect = Connect { qid, sqsize: 31, ..Connect::default() };
        Client::connect_with(at, who, &connect, cntlid)
    }

    /// The same, with other arguments.
    pub(crate) fn connect_with(
        at: SocketAddr,
        who: &Identity,
        connect: &Connect,
        cntlid: u16,
    ) -> Result<(Client, u16), Status> {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over_with(Box::new(stream), who, connect, cntlid)
    }

    /// The same, over a stream that is there.
    pub(crate) fn over(
        stream: Box<dyn Bytes>,
        who: &Identity,
        qid: u16,
        cntlid: u16,
    ) -> Result<(Client, u16), Status> {
        let connect = Connect { qid, sqsize: 31, ..Connect::default() };
        Client::over_with(stream, who, &connect, cntlid)
    }

    fn over_with(
        stream: Box<dyn Bytes>,
        who: &Identity,
        connect: &Connect,
        cntlid: u16,
    ) -> Result<(Client, u16), Status> {
        let wire = HostConnection::new(HostSettings {
            slots: 31,
            in_capsule_bytes: 8192,
            header_digest: false,
            data_digest: false,
            staging_bytes: 16 << 10,
        });
        let mut client = Client { stream, wire, finished: Vec::new() };
        client.flush();
        while client.wire.room() == 0 {
            client.receive();
        }
        let data = ConnectData {
            hostid: who.host_id,
            cntlid,
            subnqn: padded(&who.nqn, 0),
            hostnqn: padded(&who.host_nqn, 0),
        };
        let sqe = Sqe::new(OPCODE, CONNECT.into()).with_arguments(&connect.encode());
        let (cqe, _) = client.run(sqe, Payload::Out(AlignedBuf::padded(&data.encode(), 1)));
        if !cqe.status.is_success() {
            return Err(cqe.status);
        }
        let [a, b, ..] = cqe.result.to_le_bytes();
        Ok((client, u16::from_le_bytes([a, b])))
    }

    /// An admin queue with its controller enabled, and an I/O queue.
    pub(crate) fn pair(at: SocketAddr, who: &Identity) -> (Client, Client) {
        let (mut admin, cntlid) = Client::connect(at, who, 0, CNTLID_ANY).unwrap();
        admin.enable();
        let queues = Sqe::new(feature::SET, 0).with_dword(10, feature::QUEUES.into());
        assert!(admin.run(queues, Payload::None).0.status.is_success());
        let (io, _) = Client::connect(at, who, 1, cntlid).unwrap();
        (admin, io)
    }

    /// Asks for events, and for one to be told of.
    pub(crate) fn watch(&mut self, mask: u32) -> u16 {
        let events = Sqe::new(feature::SET, 0).with_dword(10, feature::EVENTS.into());
        let set = self.run(events.with_dword(11, mask), Payload::None);
        assert!(set.0.status.is_success());
        self.submit(Sqe::new(admin::ASYNC_EVENT, 0), Payload::None)
    }

    pub(crate) fn enable(&mut self) {
        self.configure(CC_ENABLE);
    }

    /// Sets the controller's configuration.
    pub(crate) fn configure(&mut self, cc: u32) {
        let property = Property { ofst: CC, value: cc.into(), ..Property::default() };
        let sqe = Sqe::new(OPCODE, PROPERTY_SET.into()).with_arguments(&property.encode());
        assert!(self.run(sqe, Payload::None).0.status.is_success());
    }

    /// Sends a command and returns its identifier.
    pub(crate) fn submit(&mut self, sqe: Sqe, payload: Payload) -> u16 {
        let cid = self.wire.submit(sqe, payload);
        self.flush();
        cid
    }

    /// The answer to a command.
    pub(crate) fn wait(&mut self, cid: u16) -> (Cqe, Payload) {
        loop {
            if let Some(at) = self.finished.iter().position(|one| one.0 == cid) {
                let (_, cqe, payload) = self.finished.remove(at);
                return (cqe, payload);
            }
            self.receive();
        }
    }

    /// Whether a command has been answered, as far as answers have come.
    pub(crate) fn has_answer(&self, cid: u16) -> bool {
        self.finished.iter().any(|one| one.0 == cid)
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn run(&mut self, sqe: Sqe, payload: Payload) -> (Cqe, Payload) {
        let cid = self.submit(sqe, payload);
        self.wait(cid)
    }

    /// The data that a command returns.
    pub(crate) fn fetch(&mut self, sqe: Sqe, size: usize) -> Vec<u8> {
        let (cqe, payload) = self.run(sqe, Payload::In(AlignedBuf::zeroed(size)));
        assert!(cqe.status.is_success(), "{}", cqe.status);
        payload.into_buf().unwrap().to_vec()
    }

    /// Whether the target has closed the connection; waits until it has, or it answers something.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 512]), Ok(0) | Err(_))
    }

    fn flush(&mut self) {
        while self.wire.has_output() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.wire.slices(&mut slices);
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|one| one.to_vec()).collect();
            self.stream.write_all(&bytes).unwrap();
            self.wire.sent(bytes.len());
        }
    }

    fn receive(&mut self) {
        let [mut first, mut second] = self.wire.spaces();
        let space = if first.is_empty() { &mut second } else { &mut first };
        let count = loop {
            match self.stream.read(space) {
                // A stop of the machine interrupts a read that has a limit.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.unwrap(),
            }
        };
        assert!(count > 0, "the target closed the connection");
        self.wire.received(count);
        while let Some(event) = self.wire.poll().unwrap() {
            if let HostEvent::Completion { cid, cqe, payload } = event {
                self.finished.push((cid, cqe, payload));
            }
        }
        self.flush();
    }
}
