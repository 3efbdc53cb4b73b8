//! Carries bytes between the person's terminal and the agent's own, and holds them back while a
//! question is on the screen.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ringfence_approval::Ticket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, Winsize, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
    tcsetwinsize,
};
use tokio::sync::oneshot;

use super::modes::Modes;
use super::prompt::{Prompt, Said};

/// Bytes that are carried at once.
const PIECE: usize = 4096;
/// How long a terminal has to take what is written to it, before it is given up.
const STUCK: Duration = Duration::from_secs(5);
/// How long the last words of an agent that has ended are waited for.
const LAST: Duration = Duration::from_secs(1);

/// What the thread is told.
pub(super) enum Order {
    Ask(Box<Ticket>, oneshot::Sender<bool>),
    /// Nobody waits for this question any more.
    Gone(String),
    /// The terminal has another size.
    Size,
    End,
}

/// Both terminals, and the questions.
pub(super) struct Relay {
    /// The person's.
    pub(super) tty: OwnedFd,
    /// Our end of the agent's, where it has one.
    pub(super) agent: Option<OwnedFd>,
    /// Whether that only carries what the agent's own, elsewhere, shows and is told: it does nothing to it.
    pub(super) between: bool,
    /// Whether what the person types is for the agent.
    pub(super) typed: bool,
    /// Whether the terminal knows control sequences.
    pub(super) smart: bool,
    pub(super) orders: Receiver<Order>,
    /// Readable when there is an order.
    pub(super) wake: OwnedFd,
    pub(super) state: State,
}

/// What changes.
pub(super) struct State {
    saved: Termios,
    to_agent: Vec<u8>,
    to_tty: Vec<u8>,
    modes: Modes,
    questions: VecDeque<(Box<Ticket>, oneshot::Sender<bool>)>,
    prompt: Option<Prompt>,
    /// Neither is read again once it has ended.
    tty_over: bool,
    agent_over: bool,
}

impl State {
    pub(super) fn new(saved: Termios) -> Self {
        Self {
            saved,
            to_agent: Vec::new(),
            to_tty: Vec::new(),
            modes: Modes::default(),
            questions: VecDeque::new(),
            prompt: None,
            tty_over: false,
            agent_over: false,
        }
    }
}

impl Relay {
    /// Until it is told to end.
    pub(super) fn run(mut self) {
        if let Some(agent) = &self.agent {
            if !self.between {
                // As the person has it: echo, keys.
                let _ = tcsetattr(agent, OptionalActions::Now, &self.state.saved);
            }
            self.size();
        }
        if self.typed {
            self.raw();
        }
        let mut last = None;
        while last.is_none_or(|last| Instant::now() < last) {
            match self.orders.try_recv() {
                Ok(Order::Ask(ticket, answer)) => {
                    self.state.questions.push_back((ticket, answer));
                    self.next();
                    continue;
                }
                Ok(Order::Gone(id)) => {
                    self.gone(&id);
                    continue;
                }
                Ok(Order::Size) => {
                    self.size();
                    self.redraw();
                    continue;
                }
                Ok(Order::End) | Err(TryRecvError::Disconnected) if last.is_none() => {
                    self.state.questions.clear();
                    self.close();
                    last = Some(Instant::now() + LAST);
                }
                _ => {}
            }
            if last.is_some() && (self.agent.is_none() || self.state.agent_over) {
                break;
            }
            self.step(last);
        }
        let rest = std::mem::take(&mut self.state.to_tty);
        let _ = self.write_all(&rest);
        let _ = tcsetattr(&self.tty, OptionalActions::Drain, &self.state.saved);
    }

    /// Waits for something, and does it.
    fn step(&mut self, last: Option<Instant>) {
        let asking = self.state.prompt.is_some();
        let reads_tty =
            !self.state.tty_over && (asking || self.typed && self.state.to_agent.is_empty());
        let reads_agent = !asking && !self.state.agent_over && self.state.to_tty.is_empty();
        let mut tty = PollFlags::empty();
        tty.set(PollFlags::IN, reads_tty && last.is_none());
        tty.set(PollFlags::OUT, !asking && !self.state.to_tty.is_empty());
        let mut agent = PollFlags::empty();
        agent.set(PollFlags::IN, reads_agent);
        agent.set(PollFlags::OUT, !self.state.to_agent.is_empty());
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        // One that nothing is wanted of is not looked at: its end would wake us without end.
        if !tty.is_empty() {
            fds.push(PollFd::new(&self.tty, tty));
        }
        let tty_at = (!tty.is_empty()).then_some(1);
        let mut agent_at = None;
        if let Some(ours) = &self.agent
            && !agent.is_empty()
        {
            agent_at = Some(fds.len());
            fds.push(PollFd::new(ours, agent));
        }
        let limit = last.map(|last| {
            let left = last.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        if poll(&mut fds, limit.as_ref()).is_err() {
            return;
        }
        let seen = |at: Option<usize>| {
            at.and_then(|at| fds.get(at)).map_or(PollFlags::empty(), PollFd::revents)
        };
        let (woken, tty, agent) = (seen(Some(0)), seen(tty_at), seen(agent_at));
        drop(fds);
        if !woken.is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 64]);
        }
        let ended = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if tty.intersects(PollFlags::IN | ended) {
            self.read_person();
        }
        if tty.contains(PollFlags::OUT) {
            let written = rustix::io::write(&self.tty, &self.state.to_tty);
            self.state.tty_over |= took(written, &mut self.state.to_tty);
        }
        if agent.intersects(PollFlags::IN | ended) {
            self.read_agent();
        }
        if agent.contains(PollFlags::OUT)
            && let Some(ours) = &self.agent
        {
            let written = rustix::io::write(ours, &self.state.to_agent);
            self.state.agent_over |= took(written, &mut self.state.to_agent);
        }
    }

    fn read_person(&mut self) {
        let mut bytes = [0_u8; PIECE];
        match rustix::io::read(&self.tty, &mut bytes) {
            Ok(0) => self.state.tty_over = true,
            Ok(read) => {
                let bytes = bytes.get(..read).unwrap_or_default();
                if self.state.prompt.is_some() {
                    self.answer(bytes);
                } else if self.typed {
                    self.state.to_agent.extend_from_slice(bytes);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.state.tty_over = true,
        }
        if self.state.tty_over && self.state.prompt.is_some() {
            // Nobody is there any more: the question waits for others.
            self.state.questions.clear();
            self.state.prompt = None;
        }
    }

    fn read_agent(&mut self) {
        let Some(ours) = &self.agent else { return };
        let mut bytes = [0_u8; PIECE];
        match rustix::io::read(ours, &mut bytes) {
            Ok(0) => self.state.agent_over = true,
            Ok(read) => {
                let bytes = bytes.get(..read).unwrap_or_default();
                self.state.modes.see(bytes);
                if !self.state.tty_over {
                    self.state.to_tty.extend_from_slice(bytes);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // What Linux says when nobody has the other end open any more.
            Err(_) => self.state.agent_over = true,
        }
    }

    /// What was typed below a question. Whatever comes after the answer is for nobody.
    fn answer(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let Some(prompt) = &mut self.state.prompt else { return };
            let (echo, said) = prompt.feed(*byte);
            let _ = self.write_all(echo.as_bytes());
            if let Some(said) = said {
                if let Some((_, answer)) = self.state.questions.pop_front() {
                    let _ = answer.send(said == Said::Yes);
                }
                self.state.prompt = None;
                self.next();
                return;
            }
        }
    }

    /// Puts the next question on the screen, or gives it back when there is none.
    fn next(&mut self) {
        if self.state.prompt.is_some() {
            return;
        }
        if self.state.questions.is_empty() {
            self.give_back();
            return;
        }
        if self.state.tty_over {
            self.state.questions.clear();
            return;
        }
        let Ok(prompt) = Prompt::new() else {
            self.state.questions.clear();
            self.give_back();
            return;
        };
        self.state.prompt = Some(prompt);
        self.raw();
        // What was typed, or put there, before it could be read is no answer. Whatever comes between
        // this and the code on the screen does not know the code.
        let _ = tcflush(&self.tty, QueueSelector::IFlush);
        self.redraw();
    }

    fn gone(&mut self, id: &str) {
        let first = self.state.questions.front().is_some_and(|(ticket, _)| ticket.id == id);
        self.state.questions.retain(|(ticket, _)| ticket.id != id);
        if first {
            self.state.prompt = None;
            self.next();
        }
    }

    fn redraw(&mut self) {
        let Some(prompt) = &self.state.prompt else { return };
        let Some((ticket, _)) = self.state.questions.front() else { return };
        let size = self.window();
        let more = self.state.questions.len() - 1;
        let question = prompt.draw(ticket, size.ws_col, size.ws_row, more);
        let plain = if self.smart { self.state.modes.plain() } else { "\r\n".into() };
        if self.write_all(format!("{plain}{question}").as_bytes()).is_err() {
            self.state.tty_over = true;
        }
    }

    fn close(&mut self) {
        if self.state.prompt.take().is_some() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        // Whatever was typed too much is not for the agent.
        let _ = tcflush(&self.tty, QueueSelector::IFlush);
        if self.smart {
            let _ = self.write_all(self.state.modes.back().as_bytes());
        }
        if self.typed {
            self.raw();
        } else {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, &self.state.saved);
        }
        if self.state.modes.full_screen()
            && let Some(agent) = &self.agent
        {
            // A program that draws a screen does so when its size changes.
            let size = self.window();
            let other = Winsize { ws_row: size.ws_row.saturating_sub(1).max(1), ..size };
            let _ = tcsetwinsize(agent, other);
            let _ = tcsetwinsize(agent, size);
        }
    }

    fn window(&self) -> Winsize {
        let size = tcgetwinsize(&self.tty).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.unwrap_or(Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })
    }

    fn size(&self) {
        if let (Some(agent), Ok(size)) = (&self.agent, tcgetwinsize(&self.tty)) {
            let _ = tcsetwinsize(agent, size);
        }
    }

    fn raw(&self) {
        if let Ok(mut now) = tcgetattr(&self.tty) {
            now.make_raw();
            let _ = tcsetattr(&self.tty, OptionalActions::Now, &now);
        }
    }

    /// Writes all of it, as long as the terminal takes some.
    fn write_all(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        let limit = Timespec { tv_sec: STUCK.as_secs().cast_signed(), tv_nsec: 0 };
        while !bytes.is_empty() {
            match rustix::io::write(self.tty.as_fd(), bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&self.tty, PollFlags::OUT)];
                    if poll(&mut fds, Some(&limit))? == 0 {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes off what was written; true when nothing can be written any more.
fn took(written: Result<usize, Errno>, bytes: &mut Vec<u8>) -> bool {
    match written {
        Ok(written) => {
            bytes.drain(..written.min(bytes.len()));
            false
        }
        Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => {
            bytes.clear();
            true
        }
    }
}
