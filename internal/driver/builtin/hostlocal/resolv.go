package hostlocal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// maxResolvConf is how much of such a file is read, in bytes.
const maxResolvConf = 1 << 20

// readResolvConf reads the DNS settings of a resolv.conf(5).
func readResolvConf(name string) (dns types.DNS, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return dns, err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return dns, fmt.Errorf("%s is not a regular file", name)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxResolvConf))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		words := strings.Fields(line)
		if len(words) < 2 || line[0] == '#' || line[0] == ';' {
			continue
		}
		switch words[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, words[1])
		case "domain":
			dns.Domain = words[1]
		case "search":
			dns.Search = append(dns.Search, words[1:]...)
		case "options":
			dns.Options = append(dns.Options, words[1:]...)
		}
	}
	return dns, lines.Err()
}
