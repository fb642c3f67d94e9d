//! The polyphase filter bank on the CPU.

mod cpu;
mod science;
mod support;
