// Command server stands for programs in the images of the conformance suite,
// which cannot be had without their registries. Called nginx or httpd it serves a
// page on the port that its last argument names, tells its pid as nginx does and
// writes a line; called nnp it tells as whom it runs; pgrep and ipcs are what
// Debian's busybox was built without.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	last := os.Args[len(os.Args)-1]
	var err error
	switch filepath.Base(os.Args[0]) {
	case "nnp":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
	case "pgrep":
		err = pgrep(last)
	case "ipcs":
		err = ipcs()
	default:
		err = serve(last)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(port string) error {
	if err := os.MkdirAll("/var/run", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/var/run/nginx.pid", []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
		return err
	}
	fmt.Println("httpd serves port", port)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "it works") })
	return http.ListenAndServe(":"+port, page)
}

// pgrep prints the pids of processes with a name, and fails silently when there
// are none.
func pgrep(name string) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	found := false
	for _, d := range dirs {
		comm, _ := os.ReadFile(filepath.Join(d, "comm")) // it may end meanwhile
		if strings.TrimSpace(string(comm)) == name {
			found = true
			fmt.Println(filepath.Base(d))
		}
	}
	if !found {
		os.Exit(1)
	}
	return nil
}

// ipcs prints the shared memory segments.
func ipcs() error {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	fmt.Printf("%s", b)
	return err
}
