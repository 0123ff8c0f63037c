//! What the operator asked for: the file as written, checked and typed. Pure: text comes in, a value goes out.

pub mod policy;

mod arguments;
mod builtin;
pub mod capture;
mod container;
mod docker;
pub mod duration;
mod edit;
mod fault;
mod ladder;
mod lines;
mod load;
mod nearest;
mod needs;
pub mod pattern;
mod ping;
mod process;
mod read;
mod registry;
mod residue;
mod settings;
mod subject;
mod template;

pub use arguments::{fits_arguments, fits_shape, program_name, written_out};
pub use builtin::{names as builtin_names, sections as builtin_sections, text as builtin_text};
pub use capture::capture;
pub use edit::set_builtin_mode;
pub use fault::{Fault, Label, render};
pub use load::{Context, Source, Whole, load, load_whole};
pub use settings::mode_word;
pub use template::ALWAYS;
