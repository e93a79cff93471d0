//! Where the groups of this process are, in the trees of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// The version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeVersion {
    /// A tree for each controller, or for a few.
    One,
    /// One tree for all controllers.
    Two,
}

/// A directory in which groups can be made, and the controllers that they have there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControllerTree {
    pub(super) directory: PathBuf,
    pub(super) version: TreeVersion,
    pub(super) controllers: Vec<&'static str>,
}

/// The trees with any of these controllers. Each controller is in one tree at most.
pub(super) fn trees(controllers: &[&'static str]) -> Vec<ControllerTree> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut trees =
        version_one(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), controllers);
    let own = version_two(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    // A group with processes cannot give controllers to groups below it, unless it is the first.
    // Then the command's group is beside that of this process.
    let places = own.iter().flat_map(|own| [Some(own.as_path()), own.parent()]).flatten();
    let usable = places.filter_map(|place| {
        let given = given_by(place, controllers);
        let is_enough = given.contains(&"memory") && given.contains(&"pids");
        is_enough.then(|| ControllerTree {
            directory: place.to_owned(),
            version: TreeVersion::Two,
            controllers: given,
        })
    });
    if trees.is_empty() {
        trees.extend(usable.take(1));
    }
    trees
}

/// The controllers that groups below a directory of version 2 have.
fn given_by(directory: &Path, controllers: &[&'static str]) -> Vec<&'static str> {
    let file = directory.join("cgroup.subtree_control");
    let given = |text: &str| {
        let has = |name: &&&str| text.split_whitespace().any(|it| it == **name);
        controllers.iter().filter(has).copied().collect::<Vec<_>>()
    };
    let text = fs::read_to_string(&file).unwrap_or_default();
    if given(&text).len() == controllers.len() {
        return given(&text);
    }
    let wanted: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    match fs::write(&file, wanted.join(" ")) {
        Ok(()) => given(&fs::read_to_string(&file).unwrap_or_default()),
        Err(_) => given(&text),
    }
}

/// The groups of a process in the trees of version 1, from the text of its `cgroup` and its
/// `mountinfo`.
fn version_one(groups: &str, mounts: &str, controllers: &[&'static str]) -> Vec<ControllerTree> {
    let mut left = controllers.to_vec();
    let mut trees = Vec::new();
    for line in groups.lines() {
        let Some([_, names, path]) = fields(line) else { continue };
        let of_line: Vec<&str> = names.split(',').collect();
        let found: Vec<&'static str> =
            left.iter().copied().filter(|name| of_line.contains(name)).collect();
        let Some(first) = found.first() else { continue };
        let is_tree = |mount: &MountedTree<'_>| {
            mount.kind == "cgroup" && mount.options.split(',').any(|option| option == *first)
        };
        if let Some(directory) = directory(mounts, path, is_tree) {
            left.retain(|name| !found.contains(name));
            let version = TreeVersion::One;
            trees.push(ControllerTree { directory, version, controllers: found });
        }
    }
    trees
}

/// The group of a process in the tree of version 2.
fn version_two(groups: &str, mounts: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    directory(mounts, path, |mount| mount.kind == "cgroup2")
}

fn fields(line: &str) -> Option<[&str; 3]> {
    let mut fields = line.splitn(3, ':');
    Some([fields.next()?, fields.next()?, fields.next()?])
}

/// A mount of a tree, as in a line of `mountinfo`.
struct MountedTree<'a> {
    root: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// The directory of the group with a path, in the first tree that is mounted and wanted.
fn directory(
    mounts: &str,
    path: &str,
    is_wanted: impl Fn(&MountedTree<'_>) -> bool,
) -> Option<PathBuf> {
    let mounted = mounts.lines().filter_map(|line| {
        let (place, tree) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut tree = tree.split(' ');
        let (root, at) = (place.next()?, place.next()?);
        let kind = tree.next()?;
        Some(MountedTree { root, at, kind, options: tree.nth(1)? })
    });
    let below = |mount: MountedTree<'_>| {
        // In a container, the mount may begin at the container's own group.
        let below = Path::new(path).strip_prefix(mount.root).ok()?;
        Some(if below.as_os_str().is_empty() {
            PathBuf::from(mount.at)
        } else {
            Path::new(mount.at).join(below)
        })
    };
    mounted.filter(is_wanted).find_map(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

    #[test]
    fn the_trees_of_version_one_are_found() {
        let groups = "4:memory:/user/a\n3:cpu,cpuacct:/\n8:pids:/docker/b\n0::/\n";
        let mounts = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct
39 31 0:36 /docker/b /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
        let tree = |directory: &str, controller| ControllerTree {
            directory: directory.into(),
            version: TreeVersion::One,
            controllers: vec![controller],
        };
        let found = version_one(groups, mounts, &CONTROLLERS);
        let expected = [
            tree("/sys/fs/cgroup/memory/user/a", "memory"),
            tree("/sys/fs/cgroup/cpu,cpuacct", "cpu"),
            tree("/sys/fs/cgroup/pids", "pids"),
        ];
        assert_eq!(found, expected);
        assert_eq!(version_two(groups, mounts), Some("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn the_tree_of_version_two_is_found() {
        let groups = "0::/user.slice/user-0.slice/session-1.scope\n";
        let mounts =
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(version_one(groups, mounts, &CONTROLLERS), []);
        let own = "/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope";
        assert_eq!(version_two(groups, mounts), Some(own.into()));
    }

    #[test]
    fn controllers_are_those_that_a_group_of_version_two_gives() {
        let group = tempfile::tempdir().unwrap();
        let file = group.path().join("cgroup.subtree_control");
        fs::write(&file, "cpuset cpu memory pids\n").unwrap();
        assert_eq!(given_by(group.path(), &CONTROLLERS), CONTROLLERS);
        assert_eq!(given_by(&group.path().join("none"), &CONTROLLERS), [""; 0]);
    }
}
