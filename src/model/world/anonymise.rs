//! Takes personal details out of a look before it is saved.
//!
//! What stays: programs, flags, subcommands and directories that everybody has, numbers, and shapes of files
//! (`*.sock`, `*.mjs`). Every other element of a path or an argument is replaced by a number of its own, the same one
//! wherever it occurs: two paths that were one before are one afterwards, so that the verdicts stay what they were.
//! A word that is not surely harmless is replaced; a saved world may read oddly, and must not tell.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice as _};

use crate::model::facts::Facts;
use crate::model::id::BootId;
use crate::model::keep::Kept;
use crate::model::known::{Known, Unknown};
use crate::model::look::Look;
use crate::model::question::{
    Answer, Binding, ChannelKind, Family, Parent, PathAnswer, Peer, Question, Registered, Response,
};
use crate::model::table::{Kernel, Table};

/// Returns the look without personal details.
pub fn anonymise(look: &Look) -> Look {
    Anonymiser::default().look(look)
}

/// Takes personal details out of several looks, with one replacement for one name in all of them.
#[derive(Debug, Default)]
pub struct Anonymiser {
    names: BTreeMap<BString, usize>,
    boots: BTreeMap<String, usize>,
    home: Option<BString>,
    // Wall clock of the first look's boot: it tells when somebody was at work, and only steps of it matter.
    epoch: Option<u64>,
}

/// Words that everybody's command lines have in common. What is not here is replaced.
const WORDS: &str = "\
    && - -- -Declipse.application -c -data -i -l -m . .. .bin .cache .claude .config .local .npm \
    .worktrees _npx acp adapter add agent anthropic-ai app app-server app.slice auto background.slice \
    bash bash-language-server bin boot bootstrap broker build bun bunx cache chrome chrome-devtools-mcp \
    claude claude-code cli client code codex codex-companion com com.jetbrains.ls.kotlinLsp.KotlinLspServerKt connect \
    context7-mcp cursor daemon data debug deno dev dist dlx docker docker-agent dumb exec executor false \
    file foreground gateway gopls gpu-process headless home host http https index init init.scope \
    install interactive java jbr jre js-debug lang language-server lib lib64 libexec local localhost log \
    lsp lsp-server main mcp mcp-debugger mcp-remote mnt modelcontextprotocol ms-playwright new node \
    node_modules none npm npx null off on opt org org.eclipse.jdt.ls.core.id1 org.javacs.kt.MainKt pid \
    pipe playwright playwright-mcp plugin plugins pnpm private proc profile proxy pts pyright-langserver \
    python python3 renderer root run rust-analyzer sandbox sbin scripts serve server session \
    session.slice sh share shell-snapshots source src sse start state stdin stdio stdout stop sys system \
    system.slice task tcp test tmp tool true tsserver typescript-language-server unix upstash user \
    user.slice usr uv uvx var vendor version watch worker workspace worktrees x yaml-language-server \
    yarn zsh";

/// Endings of file names that say what a file is for, and nothing about its owner.
const ENDINGS: &str = "\
    .js .mjs .cjs .ts .py .sh .rb .jar .sock .pid .log .json .toml .so .service .scope .slice";

/// File names with an ending that programs bear everywhere.
const FILES: &str = "\
    __main__.py * app-server-broker.mjs broker.json broker.log broker.pid broker.sock cli.js cli.mjs dbus.service \
    index.js index.mjs index.ts langserver.index.js main.js main.mjs main.py mcp-server.js npx-cli.js \
    pnpm.cjs proxy-bootstrap.js serve.js server.js server.mjs server.py vsDebugServer.cjs \
    vsDebugServer.js";

/// Beginnings of names that many have; what follows is replaced, unless it is the number of a user or a session
/// (systemd.special(7)).
const BEGINNINGS: &str = "mcp-server- mcp_server_ server- snapshot- mcp-chrome- user- session-";

impl Anonymiser {
    /// Returns the look without personal details.
    pub fn look(&mut self, look: &Look) -> Look {
        self.home.clone_from(&look.snapshot.own.home);
        let mut clean = look.clone();
        let snapshot = &mut clean.snapshot;
        snapshot.boot = self.boot(&snapshot.boot);
        let booted = snapshot.began.wall.saturating_sub(snapshot.began.boot.0 / 1_000_000);
        let epoch = *self.epoch.get_or_insert(booted);
        snapshot.began.wall = snapshot.began.wall.saturating_sub(epoch);
        snapshot.own.home = snapshot.own.home.as_ref().map(|_| HOME.into());
        let mut rows = look.snapshot.table.rows().to_vec();
        for row in rows.iter_mut().filter(|row| row.kernel == Kernel::No) {
            let name = self.program(row.name());
            row.comm = [0; 16];
            let length = name.len().min(15);
            row.comm[..length].copy_from_slice(&name[..length]);
        }
        snapshot.table = Table::new(rows);
        for entry in &mut snapshot.arguments {
            entry.argv = self.known(&entry.argv, |own, argv| own.argv(argv).into());
        }
        for server in &mut snapshot.configured {
            server.name = self.text(server.name.as_bytes()).to_string();
            server.file = self.text(server.file.as_bytes()).to_string();
            server.command = self.command(&server.command);
            server.args = server.args.iter().map(|arg| self.text(arg)).collect();
        }
        for gap in &mut snapshot.gaps {
            gap.source = self.prose(&gap.source);
            gap.why = self.unknown(&gap.why);
            gap.cure = gap.cure.as_ref().map(|cure| self.prose(cure));
        }
        clean.marks.retain(|mark| !matches!(mark.what, Kept::Container { .. }));
        for mark in &mut clean.marks {
            mark.note = None;
            mark.set = mark.set.saturating_sub(epoch);
            mark.until = mark.until.map(|until| until.saturating_sub(epoch));
            match &mut mark.what {
                Kept::Process { boot, name, .. } => {
                    *boot = self.boot(boot);
                    *name = self.program(name.as_bytes()).to_string();
                }
                Kept::Directory { path } => *path = self.text(path),
                Kept::Container { name, .. } => name.clear(),
            }
        }
        self.leases(&mut clean.snapshot.leases, epoch);
        // Nothing of containers is saved: every name in them is somebody's own.
        clean.snapshot.engines.clear();
        clean.answers = look
            .answers
            .iter()
            .filter(|(question, _)| !matches!(question, Question::Engine(_)))
            .map(|(question, answer)| (self.question(question), self.known(answer, Self::answer)))
            .collect();
        clean
    }

    pub(super) fn boot(&mut self, boot: &BootId) -> BootId {
        let next = self.boots.len() + 1;
        BootId(format!("boot-{}", self.boots.entry(boot.0.clone()).or_insert(next)))
    }

    pub(super) fn known<T, U>(
        &mut self,
        value: &Known<T>,
        clean: impl FnOnce(&mut Self, &T) -> U,
    ) -> Known<U> {
        match value {
            Ok(value) => Ok(clean(self, value)),
            Err(why) => Err(self.unknown(why)),
        }
    }

    pub(super) fn unknown(&mut self, why: &Unknown) -> Unknown {
        Unknown { reason: why.reason, what: self.prose(&why.what) }
    }

    fn question(&mut self, question: &Question) -> Question {
        match question {
            Question::Path { of, path } => Question::Path { of: *of, path: self.text(path) },
            Question::Registered { of, registry, place, key } => Question::Registered {
                of: *of,
                registry: registry.clone(),
                place: self.text(place),
                key: self.text(key),
            },
            Question::Bound { of, path, file } => {
                Question::Bound { of: *of, path: self.text(path), file: *file }
            }
            Question::Named { of, text } => Question::Named { of: *of, text: self.text(text) },
            Question::Ping { of, policy, call, socket, tree, patience } => Question::Ping {
                of: *of,
                policy: policy.clone(),
                call: self.call(call),
                socket: self.text(socket),
                tree: tree.clone(),
                patience: *patience,
            },
            Question::Facts(_)
            | Question::Channel { .. }
            | Question::Holders { .. }
            | Question::Sockets(_)
            | Question::Owner { .. }
            | Question::Activity(_)
            | Question::Terminals(_)
            | Question::Engine(_) => question.clone(),
        }
    }

    fn answer(&mut self, answer: &Answer) -> Answer {
        let mut clean = answer.clone();
        match &mut clean {
            Answer::Facts(facts) => self.facts(facts),
            Answer::Path(PathAnswer::Present { parent, .. } | PathAnswer::Absent { parent }) => {
                self.parent(parent);
            }
            Answer::Path(PathAnswer::ParentAbsent { nearest }) => self.parent(nearest),
            Answer::Channel(channel) => {
                if let ChannelKind::Other(text) = &mut channel.kind {
                    *text = self.text(text.as_bytes()).to_string();
                }
                channel.far = self.known(&channel.far, |_, far| *far);
                channel.unread = self.known(&channel.unread, |_, unread| *unread);
            }
            Answer::Sockets(sockets) => {
                for listener in &mut sockets.listeners {
                    listener.name = self.socket(listener.family, &listener.name);
                }
                for connection in &mut sockets.connections {
                    connection.name = self.socket(connection.family, &connection.name);
                    if let Peer::Remote(address) = &mut connection.peer {
                        *address = self.socket(connection.family, address.as_bytes()).to_string();
                    }
                }
            }
            Answer::Bound(Binding::Renamed(name)) => *name = self.text(name),
            Answer::Bound(
                Binding::Replaced { parent, .. }
                | Binding::Absent { parent }
                | Binding::DirectoryAbsent { nearest: parent },
            ) => self.parent(parent),
            Answer::Ping(pinged) => {
                if let Response::Otherwise(text) = &mut pinged.response {
                    *text = self.replaced(text);
                }
                pinged.before = self.known(&pinged.before, |_, progress| *progress);
                pinged.after = self.known(&pinged.after, |_, progress| *progress);
            }
            Answer::Bound(Binding::Here)
            | Answer::Holders(_)
            | Answer::Named(_)
            | Answer::Owner(_)
            | Answer::Activity(_)
            | Answer::Terminals(_)
            | Answer::Engine(_)
            | Answer::Registered(Registered::Listed { holder: None } | Registered::NotListed { .. }) => {}
            Answer::Registered(Registered::Over(text)) => *text = self.text(text.as_bytes()).to_string(),
            Answer::Registered(Registered::Listed { holder: Some(holder) }) => **holder = self.holder(holder),
        }
        clean
    }

    fn facts(&mut self, facts: &mut Facts) {
        facts.uid = self.known(&facts.uid, |_, uid| *uid);
        facts.argv = self.known(&facts.argv, |own, argv| own.argv(argv));
        facts.exe = self.known(&facts.exe, |own, exe| {
            let mut exe = exe.clone();
            exe.path = own.command(&exe.path);
            exe
        });
        facts.cwd = self.known(&facts.cwd, |own, cwd| {
            let mut cwd = cwd.clone();
            cwd.path = own.text(&cwd.path);
            cwd.fate = own.known(&cwd.fate, |_, fate| *fate);
            cwd
        });
        facts.env = self.known(&facts.env, |own, env| {
            env.iter().map(|(name, value)| (name.clone(), own.text(value))).collect()
        });
        facts.cgroup = self.known(&facts.cgroup, |own, cgroup| own.text(cgroup));
        facts.namespaces = self.known(&facts.namespaces, |_, namespaces| *namespaces);
        facts.tracer = self.known(&facts.tracer, |_, tracer| *tracer);
        facts.hangup = self.known(&facts.hangup, |_, hangup| *hangup);
        facts.freezer = self.known(&facts.freezer, |_, freezer| *freezer);
    }

    fn parent(&mut self, parent: &mut Parent) {
        parent.path = self.text(&parent.path);
        parent.mount = self.text(&parent.mount);
    }

    fn socket(&mut self, family: Family, name: &[u8]) -> BString {
        let at = name.rfind_byte(b':');
        match (family, at) {
            (Family::Tcp | Family::Udp, Some(at)) if !is_local(&name[..at]) => {
                let host = self.replaced(&name[..at]);
                [&host[..], &name[at..]].concat().into()
            }
            (Family::Tcp | Family::Udp, _) => name.into(),
            (Family::Unix | Family::UnixDatagram, _) => self.text(name),
        }
    }

    fn argv(&mut self, argv: &[BString]) -> Vec<BString> {
        let clean =
            |(at, text): (usize, &BString)| if at == 0 { self.command(text) } else { self.text(text) };
        argv.iter().enumerate().map(clean).collect()
    }

    /// Cleans the path of a program: its file name stays.
    fn command(&mut self, path: &[u8]) -> BString {
        let at = path.rfind_byte(b'/').map_or(0, |at| at + 1);
        let name = self.program(&path[at..]);
        [&self.text(&path[..at])[..], &name[..]].concat().into()
    }

    fn program(&mut self, name: &[u8]) -> BString {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
        // A process may call itself anything (setproctitle(3)); programs have short plain names.
        if name.len() <= 32 && name.iter().all(plain) { name.into() } else { self.replaced(name) }
    }

    /// Cleans an argument, a path or a value, atom by atom.
    pub(super) fn text(&mut self, text: &[u8]) -> BString {
        let text: BString = match &self.home {
            Some(home) if home.len() > 1 => text.replace(&home[..], HOME).into(),
            Some(_) | None => text.into(),
        };
        if let Some(rest) = text.strip_prefix(HOME.as_bytes())
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            return [HOME.as_bytes(), &self.atoms(rest)].concat().into();
        }
        if text.starts_with(b"-") {
            // A flag is part of a program's language, its value is not; `-pSECRET` is a value too.
            let end = text.find_byteset(b"=:/").unwrap_or(text.len());
            let name = &text[..end];
            let plain = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'-';
            if name.starts_with(b"--") && name.len() <= 40 && name.iter().all(plain) || name.len() == 2 {
                return [name, &self.atoms(&text[end..])].concat().into();
            }
        }
        self.atoms(&text).into()
    }

    fn atoms(&mut self, text: &[u8]) -> Vec<u8> {
        let mut clean = Vec::new();
        let mut rest = text;
        loop {
            let end = rest.find_byteset(b"/:=,@ ").unwrap_or(rest.len());
            clean.extend_from_slice(&self.atom(&rest[..end]));
            match rest.get(end) {
                Some(&border) => clean.push(border),
                None => return clean,
            }
            rest = &rest[end + 1..];
        }
    }

    fn atom(&mut self, atom: &[u8]) -> BString {
        let known = |list: &str| list.split(' ').any(|word| word.as_bytes() == atom);
        if atom.is_empty() || is_number(atom) || known(WORDS) || known(FILES) {
            return atom.into();
        }
        let ending = ENDINGS.split(' ').find(|ending| atom.ends_with(ending.as_bytes()));
        let stem = &atom[..atom.len() - ending.map_or(0, str::len)];
        let beginning = BEGINNINGS.split(' ').find(|beginning| stem.starts_with(beginning.as_bytes()));
        let (beginning, rest) = stem.split_at(beginning.map_or(0, str::len));
        let mut clean = BString::from(beginning);
        if is_number(rest) {
            clean.extend_from_slice(rest);
        } else {
            clean.extend_from_slice(&self.replaced(rest));
        }
        if let Some(ending) = ending {
            clean.extend_from_slice(ending.as_bytes());
        }
        clean
    }

    pub(super) fn replaced(&mut self, name: &[u8]) -> BString {
        if is_replaced(name) {
            return name.into();
        }
        let next = self.names.len() + 1;
        let number = *self.names.entry(name.into()).or_insert(next);
        format!("x{number}").into()
    }

    /// Cleans a sentence of ours: its words stay, the paths and names in it do not.
    fn prose(&mut self, text: &str) -> String {
        let home = self.home.clone().unwrap_or_default();
        let user = home.rfind_byte(b'/').map_or(&b""[..], |at| &home[at + 1..]);
        let own =
            |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic() || b".,;()-".contains(&byte));
        // What stands in quotes is somebody else's, plain words too: a parser quotes the file that it read.
        let mut quoted = false;
        let words = text.split(' ').map(|word| {
            let quotes = word.bytes().filter(|byte| b"\"`".contains(byte)).count();
            let foreign = quoted || quotes > 0;
            quoted ^= quotes % 2 == 1;
            let bare = word.trim_matches(['.', ',', ';', '(', ')', '\'']);
            if !user.is_empty() && bare.as_bytes() == user {
                "user".to_owned()
            } else if !foreign && own(word) {
                word.to_owned()
            } else {
                self.text(word.as_bytes()).to_string()
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

const HOME: &str = "/home/user";

fn is_replaced(atom: &[u8]) -> bool {
    atom.strip_prefix(b"x").is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

fn is_number(atom: &[u8]) -> bool {
    (1..=7).contains(&atom.len()) && atom.iter().all(u8::is_ascii_digit)
}

fn is_local(host: &[u8]) -> bool {
    host.starts_with(b"127.") || matches!(host, b"[::1]" | b"[::]" | b"0.0.0.0" | b"*" | b"::1" | b"::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::world::{parse, print};

    const WORLD: &str = "\
reapd world 1
look at 10d home=/home/ana
  pid  ppid began command
  1    0    10d   init
  4242 1    3d    /home/ana/.nvm/bin/node /home/ana/.claude/app-server-broker.mjs serve --endpoint unix:/tmp/cxc-Ab/broker.sock --cwd /home/ana/secret-project --token=hunter2 -phunter2 -v
  facts 4242 cwd=/home/ana/secret-project fate=deleted
  env 4242 SESSION=ana@example.org
  path 4242 /home/ana/secret-project absent
  listens 4242 unix /tmp/cxc-Ab/broker.sock
  client 4242 tcp 10.9.8.7:443 peer=remote/10.9.8.6:5000
  gap homes ?denied:\"reading /home/ana/Documents of ana\"
  mark directory /home/ana/secret-project note=mine
";

    #[test]
    fn nothing_personal_stays() {
        let text = print(&anonymise(&parse(WORLD).unwrap()[0]));
        for secret in
            ["ana/", "ana ", "ana\"", "secret", "hunter2", "example", "cxc-Ab", "10.9", "mine", "Documents"]
        {
            assert!(!text.contains(secret), "{secret} in:\n{text}");
        }
        for kept in
            ["app-server-broker.mjs serve --endpoint unix:/tmp/", "/broker.sock --cwd /home/user/", "node"]
        {
            assert!(text.contains(kept), "{kept} not in:\n{text}");
        }
    }

    #[test]
    fn what_was_one_path_stays_one_path() {
        let clean = &anonymise(&parse(WORLD).unwrap()[0]);
        let id = clean.snapshot.table.rows()[1].id;
        let facts = clean.facts(id).unwrap().unwrap();
        let argv = facts.argv.as_ref().unwrap();
        assert_eq!(facts.cwd.as_ref().unwrap().path, argv[6]);
        assert!(clean.answers.contains_key(&Question::Path { of: id, path: argv[6].clone() }));
    }

    #[test]
    fn twice_is_once() {
        let once = anonymise(&parse(WORLD).unwrap()[0]);
        assert_eq!(print(&anonymise(&once)), print(&once));
    }
}
