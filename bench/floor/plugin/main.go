// Command plugin is the least that a CNI plugin in front of an agent can be:
// it sends its command, container and namespace over a unix socket and waits
// for one byte. Raw system calls, because package initialisation is what
// costs.
package main

import (
	"os"
	"syscall"
)

const socket = "/run/floor.sock"

func main() {
	if err := call(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func call() error {
	stdin := make([]byte, 4096) // a runtime waits until it was read
	if _, err := syscall.Read(0, stdin); err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	request := os.Getenv("CNI_COMMAND") + " " + os.Getenv("CNI_CONTAINERID") + " " + os.Getenv("CNI_NETNS")
	if iface := os.Getenv("BENCH_IFACE"); iface != "" {
		request += " " + iface + " " + os.Getenv("BENCH_RATE") // the logical port, and its rate
	}
	request += "\n"
	if _, err := syscall.Write(fd, []byte(request)); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if n, err := syscall.Read(fd, answer); err != nil {
		return err
	} else if n != 1 || answer[0] != '+' {
		return syscall.EIO // the agent's log says why
	}
	return nil
}
