package explain

// Change is a kind of change in the folder, whether the runtime hears of it, and
// what follows.
type Change struct {
	What  string `json:"what"`
	Heard bool   `json:"heard"`
	Then  string `json:"then"`
}

// The kinds of change. The first five are events of inotify as fsnotify tells
// them (fsnotify 1.9); test/conf makes each and listens.
const (
	Written   = "written in place"
	RenamedIn = "renamed inside the folder (a temporary file beside it)"
	MovedIn   = "moved in from another folder, or linked"
	Removed   = "removed"
	MovedAway = "moved to another folder"
	Touched   = "changed in mode or times only"
	Broken    = "broken, so that it cannot be parsed"
	Installed = "a plugin that was missing is installed"
	Detach    = "changed while pods have its network"
)

// changes are told of a runtime that runs.
func changes(d Dialect) []Change {
	switch d {
	case Containerd:
		return []Change{
			{Written, true, "the folder is read again at each write: half a file is a broken one for that moment"},
			{RenamedIn, true, "the folder is read again, by the event of the old name"},
			{MovedIn, false, "CREATE is not listened to: not loaded until something else changes, or containerd restarts"},
			{Removed, true, "the folder is read again; without a file the runtime is not ready"},
			{MovedAway, true, "the folder is read again; without a file the runtime is not ready"},
			{Touched, false, "CHMOD is not listened to"},
			{Broken, true, "every network is gone at once, and NetworkReady is false"},
			{Installed, false, "it was not looked for; pods that failed are tried again by kubelet"},
			{Detach, true, "DEL goes by the file of that day, not by the one of ADD"},
		}
	case CRIO:
		return []Change{
			{Written, true, "the folder is read again at each write; half a file is passed over for that moment"},
			{RenamedIn, true, "the folder is read again"},
			{MovedIn, true, "the folder is read again"},
			{Removed, true, "only of the default network's file; that of another stays loaded until the next change"},
			{MovedAway, true, "the folder is read again"},
			{Touched, false, "CHMOD is not listened to"},
			{Broken, true, "it is passed over: the next usable file becomes the default, unless cni_default_network names this one"},
			{Installed, true, "the folders of plugins are watched too, and the configurations are read again"},
			{Detach, true, "DEL goes by the configuration that libcni kept at ADD"},
		}
	}
	poll := "seen within 5 s, which is how often the folder is looked at"
	detach := "DEL goes by the file that wins on that day, not by the one of ADD"
	if d == Fairlead {
		poll = "seen at once, and at the latest with the next pod, for which the folder is looked at"
		detach = "DEL goes by the configuration that was recorded at ADD"
	}
	return []Change{
		{Written, true, poll},
		{RenamedIn, true, poll},
		{MovedIn, true, poll},
		{Removed, true, "the next usable file wins; without one the network that was loaded stays in force"},
		{MovedAway, true, "the next usable file wins; without one the network that was loaded stays in force"},
		{Touched, true, "nothing follows"},
		{Broken, true, "it is passed over: the next usable file wins; without one the network that was loaded stays in force"},
		{Installed, true, poll},
		{Detach, true, detach},
	}
}
