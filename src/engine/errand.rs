//! A short-lived container of our own: it looks at what only root of the host may, says it, and is gone.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use hyper::Request;
use hyper::body::{Body as _, Bytes};

use super::client::Client;
use super::fault::Fault;
use crate::model::container::ContainerId;

/// What it says is a line for each process; more is not what we asked for.
const SAID_MOST: usize = 1024 * 1024;
/// How often, and how long after one another, it is looked whether the engine has removed it.
const REMOVAL_TRIES: u32 = 50;
const REMOVAL_AGAIN: Duration = Duration::from_millis(20);
/// The label that such a container bears, for people who wonder what it is.
const LABEL: &str = "dev.reapd.helper";

/// What such a container is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// The image, by its id; nothing of it is run.
    pub image: String,
    /// The container's name.
    pub name: String,
    /// The program inside, and its arguments.
    pub argv: Vec<String>,
    /// Files of the host, and where they are inside; nobody can write to them there.
    pub files: Vec<(String, String)>,
}

impl Client {
    /// Runs a program of the host in a container that sees the processes of the host, and returns what it printed. The
    /// container has no network, may write nowhere, and has two capabilities: to look at other users' processes
    /// (`SYS_PTRACE`) and to read past permissions (`DAC_READ_SEARCH`). The engine removes it when it ends; where
    /// anything goes wrong, we do.
    pub async fn errand(&self, errand: &Errand) -> Result<Vec<u8>, Fault> {
        let options = CreateContainerOptions { name: Some(errand.name.clone()), ..Default::default() };
        let call = self.call(self.patience())?;
        let made = call.within(call.docker.create_container(Some(options), body(errand))).await?;
        let id = ContainerId::new(&made.id).ok_or_else(|| Fault::malformed("no id of a container"))?;
        let said = self.ran(&id).await;
        let is_left = said.is_err() || self.is_left(&id).await;
        if is_left {
            // It may run, or never have run; that it could not be removed changes nothing of what we know.
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            let call = self.call(self.patience())?;
            drop(call.within(call.docker.remove_container(id.as_str(), Some(options))).await);
        }
        said
    }

    /// Waits for the engine to remove it, so that the next list does not show it; says whether it is there still. All
    /// of that is within one deadline, and an engine that hangs is not asked again.
    async fn is_left(&self, id: &ContainerId) -> bool {
        let looking = async {
            for _ in 0..REMOVAL_TRIES {
                match self.inspect(id, &BTreeSet::new()).await {
                    Ok(None) => return false,
                    Err(Fault::Hung) => return true,
                    Ok(Some(_)) | Err(_) => tokio::time::sleep(REMOVAL_AGAIN).await,
                }
            }
            true
        };
        tokio::time::timeout(self.patience(), looking).await.unwrap_or(true)
    }

    /// Starts it, and reads to its end.
    async fn ran(&self, id: &ContainerId) -> Result<Vec<u8>, Fault> {
        let reading = async {
            let call = self.call(self.patience())?;
            // Attached before it starts, so that nothing is missed. Without a word about an upgrade, the engine sends what
            // it prints as a body without a length.
            let path = format!("/containers/{}/attach?stream=1&stdout=1", id.as_str());
            let request = Request::post(path).body(bollard::body_full(Bytes::new()));
            let request = request.map_err(|error| Fault::malformed(error.to_string()))?;
            let response = call.send(request).await?;
            if !response.status().is_success() {
                let status = response.status().as_u16();
                return Err(Fault::Refused { status, message: "attaching to our own container".to_owned() });
            }
            let start = self.call(self.patience())?;
            start.within(start.docker.start_container(id.as_str(), None::<StartContainerOptions>)).await?;
            let mut body = response.into_body();
            let mut said = Vec::new();
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let frame = frame.map_err(|error| Fault::malformed(error.to_string()))?;
                said.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if said.len() > SAID_MOST {
                    return Err(Fault::TooLong);
                }
            }
            printed(&said)
        };
        tokio::time::timeout(self.patience(), reading).await.unwrap_or(Err(Fault::Hung))
    }
}

fn body(errand: &Errand) -> ContainerCreateBody {
    let mounts = errand.files.iter().map(|(source, inside)| Mount {
        target: Some(inside.clone()),
        source: Some(source.clone()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Default::default()
    });
    let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    let host = HostConfig {
        auto_remove: Some(true),
        network_mode: Some("none".to_owned()),
        pid_mode: Some("host".to_owned()),
        readonly_rootfs: Some(true),
        cap_drop: words(&["ALL"]),
        cap_add: words(&["SYS_PTRACE", "DAC_READ_SEARCH"]),
        security_opt: words(&["no-new-privileges"]),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        mounts: Some(mounts.collect()),
        ..Default::default()
    };
    ContainerCreateBody {
        image: Some(errand.image.clone()),
        user: Some("0:0".to_owned()),
        entrypoint: Some(errand.argv.iter().take(1).cloned().collect()),
        cmd: Some(errand.argv.iter().skip(1).cloned().collect()),
        attach_stdout: Some(true),
        labels: Some(std::iter::once((LABEL.to_owned(), "1".to_owned())).collect()),
        host_config: Some(host),
        ..Default::default()
    }
}

/// Returns what was printed, from frames of an eight-byte head (stream, three zeros, length, high byte first) each.
fn printed(frames: &[u8]) -> Result<Vec<u8>, Fault> {
    let broken = || Fault::malformed("what our own container printed broke off");
    let mut rest = frames;
    let mut text = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| broken())?;
        text.extend_from_slice(body.get(..length).ok_or_else(broken)?);
        rest = &body[length..];
    }
    if rest.is_empty() { Ok(text) } else { Err(broken()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::{Fake, Reply};
    use crate::engine::run;

    const ATTACH: &str = "POST /v1.41/containers/aa";
    const START: &str =
        "POST /v1.41/containers/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/start";
    const PATIENCE: Duration = Duration::from_millis(500);

    fn framed(text: &str) -> String {
        let length = u8::try_from(text.len()).unwrap();
        format!("\u{1}\0\0\0\0\0\0{}{text}", char::from(length))
    }

    fn ask(attach: Reply, start: Reply) -> (Result<Vec<u8>, Fault>, Vec<String>) {
        ask_of(attach, start, &[])
    }

    fn ask_of(
        attach: Reply,
        start: Reply,
        more: &[(&'static str, Reply)],
    ) -> (Result<Vec<u8>, Fault>, Vec<String>) {
        let made = format!(r#"{{"Id":"{}","Warnings":[]}}"#, "a".repeat(64));
        let usual = [
            ("POST /v1.41/containers/create", Reply::Whole(201, made)),
            (ATTACH, attach),
            (START, start),
            ("DELETE /v1.41/containers/", Reply::Whole(204, String::new())),
        ];
        let fake = Fake::docker(usual.into_iter().chain(more.iter().cloned()));
        let errand = Errand {
            image: "sha256:0".into(),
            name: "reapd-x".into(),
            argv: vec!["/reapd/reapd".into(), "stdin".into()],
            files: vec![("/usr/bin/reapd".into(), "/reapd/reapd".into())],
        };
        let said = run(async { Client::connect(&fake.id(), PATIENCE).await?.errand(&errand).await });
        (said.unwrap(), fake.heard())
    }

    #[test]
    fn what_it_printed_comes_back() {
        let printed = [framed("one\n"), framed("two\n")].concat();
        let (said, heard) = ask(Reply::good(printed), Reply::Whole(204, String::new()));
        assert_eq!(said.unwrap(), b"one\ntwo\n");
        assert!(heard[3].contains("/attach?"), "before it starts: {heard:?}");
        assert!(heard.iter().all(|asked| !asked.starts_with("DELETE")), "the engine removes it");
    }

    #[test]
    fn whether_it_is_gone_takes_one_deadline_at_most() {
        // One that hangs is asked once; one that says nothing of use, for as long as one call may take.
        for (reply, most) in [(Reply::Silence, 1), (Reply::good("{}"), 30)] {
            let inspect = [("GET /v1.41/containers/", reply.clone())];
            let done = Reply::Whole(204, String::new());
            let (said, heard) = ask_of(Reply::good(framed("x")), done, &inspect);
            assert_eq!(said.unwrap(), b"x");
            let asked = heard.iter().filter(|asked| asked.starts_with("GET /v1.41/containers/")).count();
            assert!((1..=most).contains(&asked), "{reply:?}: {asked}");
            assert!(heard.last().unwrap().starts_with("DELETE"), "{heard:?}");
        }
    }

    #[test]
    fn it_is_removed_however_it_ends() {
        let done = || Reply::Whole(204, String::new());
        let refused = || Reply::Whole(500, r#"{"message":"no"}"#.into());
        for (attach, start) in [
            (refused(), done()),
            (Reply::good(framed("x")), refused()),
            (Reply::Silence, done()),
            (Reply::Endless, done()),
            (Reply::good("\u{1}\0\0\0"), done()),
        ] {
            let (said, heard) = ask(attach.clone(), start);
            assert!(said.is_err(), "{attach:?}");
            let last = heard.last().unwrap();
            assert!(last.starts_with("DELETE") && last.contains("force=true"), "{heard:?}");
        }
    }
}
