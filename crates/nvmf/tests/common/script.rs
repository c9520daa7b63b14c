//! A host that sends exactly the given bytes, word by word.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use esker_nvmf::target::Target;
use esker_nvmf::wire::capsule::{Cqe, Sgl, Sqe};
use esker_nvmf::wire::fabrics::{
    CC, CC_ENABLE, CNTLID_ANY, CONNECT, Connect, ConnectData, OPCODE, PROPERTY_SET, Property,
};
use esker_nvmf::wire::padded;
use esker_nvmf::wire::pdu::{CommonHeader, IcReq, PduType};

/// Speaks the protocol word by word.
pub(crate) struct Script(pub(crate) TcpStream);

impl Script {
    pub(crate) fn open(target: &Target) -> Script {
        let stream = TcpStream::connect(target.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Script(stream)
    }

    pub(crate) fn pdu(&mut self, kind: PduType, body: &[u8], data: &[u8]) {
        let hlen = 8 + body.len();
        let header = CommonHeader {
            kind: kind as u8,
            flags: if kind == PduType::H2cData { 4 } else { 0 },
            hlen: u8::try_from(hlen).unwrap(),
            pdo: if data.is_empty() { 0 } else { u8::try_from(hlen).unwrap() },
            plen: u32::try_from(hlen + data.len()).unwrap(),
        };
        let _ = self.0.write_all(&[&header.encode(), body, data].concat()); // it may be closed
    }

    pub(crate) fn initialize(&mut self) {
        self.pdu(PduType::IcReq, &IcReq::default().encode(), &[]);
        self.0.read_exact(&mut [0; 128]).unwrap();
    }

    pub(crate) fn connect(&mut self, qid: u16, cntlid: u16, nqn: &str) -> [u8; 24] {
        self.connect_with(Connect { qid, sqsize: 31, ..Connect::default() }, cntlid, nqn)
    }

    pub(crate) fn connect_with(&mut self, connect: Connect, cntlid: u16, nqn: &str) -> [u8; 24] {
        self.connect_as("nqn.2026-01.io.esker:script", connect, cntlid, nqn)
    }

    pub(crate) fn connect_as(
        &mut self,
        host: &str,
        connect: Connect,
        cntlid: u16,
        nqn: &str,
    ) -> [u8; 24] {
        let data = ConnectData {
            hostid: [7; 16],
            cntlid,
            subnqn: padded(nqn, 0),
            hostnqn: padded(host, 0),
        };
        let sgl = Sgl { address: 0, length: 1024, kind: Sgl::IN_CAPSULE };
        let sqe = Sqe { sgl, ..Sqe::new(OPCODE, CONNECT.into()) };
        let sqe = sqe.with_arguments(&connect.encode());
        self.pdu(PduType::CapsuleCmd, &sqe.encode(), &data.encode());
        let mut response = [0; 24];
        self.0.read_exact(&mut response).unwrap();
        response
    }

    /// The type and error status of a termination request, after which the connection ends, and is not reset.
    pub(crate) fn termination(&mut self) -> (u8, u8) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        let last =
            rest.windows(3).rposition(|one| one == [3, 0, 24]).expect("a termination request");
        (rest[last], rest[last + 8])
    }

    /// Sends a command without data.
    pub(crate) fn command(&mut self, sqe: &Sqe) {
        self.pdu(PduType::CapsuleCmd, &sqe.encode(), &[]);
    }

    /// The next response: a completion, whose capsule brings no data.
    pub(crate) fn response(&mut self) -> Cqe {
        let mut response = [0; 24];
        self.0.read_exact(&mut response).unwrap();
        assert_eq!(response[0], PduType::CapsuleResp as u8);
        Cqe::decode(&response[8..]).unwrap()
    }

    /// An admin queue with its controller enabled.
    pub(crate) fn admin(target: &Target, sqsize: u16) -> Script {
        let mut script = Script::open(target);
        script.initialize();
        let connect = Connect { sqsize, ..Connect::default() };
        let response = script.connect_with(connect, CNTLID_ANY, super::NQN);
        assert_eq!(response[22..], [0, 0]);
        let enable = Property { ofst: CC, value: CC_ENABLE.into(), ..Property::default() };
        script.command(&Sqe::new(OPCODE, PROPERTY_SET.into()).with_arguments(&enable.encode()));
        assert!(script.response().status.is_success());
        script
    }
}
