//! The server that every client is measured against over HTTP: `toolrack-bench serve-http`.
//!
//! One thread on one epoll, because a thread per connection would spend most of its time on being woken:
//! what is measured is the client. It prints its port, and ends with its input.
//!
//! **Invariant:** a client that does not read holds up nobody but itself.

mod answer;
mod request;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use self::answer::{Answers, Outgoing};
use self::request::Request;
pub(crate) use self::request::{Eras, Framing, path};
use crate::print;

const INPUT: u64 = 0;
const DOOR: u64 = 1;
const FIRST_GUEST: u64 = 2;

/// More than any request of the bench takes, so that one read brings all of it.
const READ_BYTES: usize = 16 * 1024;
const EVENTS: usize = 256;

/// Serves until the input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen on")?;
    door.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let input = io::stdin();
    epoll::add(&epoll, input.as_fd(), EventData::new_u64(INPUT), EventFlags::IN)?;
    epoll::add(&epoll, &door, EventData::new_u64(DOOR), EventFlags::IN)?;
    print::line(door.local_addr()?.port());

    let mut house =
        House { epoll, door, guests: HashMap::new(), n_guests: 0, answers: Answers::new() };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&house.epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            match event.data.u64() {
                INPUT => return Ok(()),
                DOOR => house.let_in()?,
                guest => house.attend(guest)?,
            }
        }
    }
}

struct House {
    epoll: OwnedFd,
    door: TcpListener,
    guests: HashMap<u64, Guest>,
    n_guests: u64,
    answers: Answers,
}

/// One connection.
struct Guest {
    stream: TcpStream,
    said: Vec<u8>,
    outgoing: Outgoing,
    awaits: EventFlags,
}

impl House {
    fn let_in(&mut self) -> anyhow::Result<()> {
        loop {
            let stream = match self.door.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("nobody can be let in"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let name = FIRST_GUEST + self.n_guests;
            self.n_guests += 1;
            epoll::add(&self.epoll, &stream, EventData::new_u64(name), EventFlags::IN)?;
            let (said, outgoing) = (Vec::with_capacity(READ_BYTES), Outgoing::default());
            self.guests.insert(name, Guest { stream, said, outgoing, awaits: EventFlags::IN });
        }
    }

    /// Closing the connection also ends what epoll knows of it.
    fn attend(&mut self, name: u64) -> anyhow::Result<()> {
        let Some(guest) = self.guests.get_mut(&name) else { return Ok(()) };
        // A client may hang up in the middle of anything.
        let Ok(Some(awaits)) = guest.serve(&mut self.answers) else {
            self.guests.remove(&name);
            return Ok(());
        };
        if awaits != guest.awaits {
            epoll::modify(&self.epoll, &guest.stream, EventData::new_u64(name), awaits)?;
            guest.awaits = awaits;
        }
        Ok(())
    }
}

impl Guest {
    /// Does what can be done now, and says what to wait for; nothing after the end.
    fn serve(&mut self, answers: &mut Answers) -> anyhow::Result<Option<EventFlags>> {
        if !self.outgoing.is_empty() {
            self.outgoing.send(&self.stream)?;
        } else if !self.hear()? {
            return Ok(None);
        }
        while self.outgoing.is_empty() {
            let Some((request, n_bytes)) = Request::first_of(&self.said) else { break };
            answers.answer(&request, &mut self.outgoing)?;
            // What is left is nearly always nothing.
            self.said.drain(..n_bytes);
            self.outgoing.send(&self.stream)?;
        }
        let is_waiting = self.outgoing.is_empty();
        Ok(Some(if is_waiting { EventFlags::IN } else { EventFlags::OUT }))
    }

    /// Whether there was anything to hear but the end.
    fn hear(&mut self) -> anyhow::Result<bool> {
        self.said.reserve(READ_BYTES);
        match rustix::io::read(&self.stream, spare_capacity(&mut self.said)) {
            Ok(n_bytes) => Ok(n_bytes > 0),
            Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
