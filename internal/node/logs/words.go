package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Words is what a container has left in a file, as far as it counts: most, in bytes.
// What is no regular file is an error.
func Words(file string, most int64) ([]byte, error) {
	f, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// openRegular opens a file that a container may have put there, to read it. What is
// no regular file is refused: a pipe would never end, a link leads elsewhere.
func openRegular(file string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Clean(file), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// LastLines are the end of a log in CRI's format, without the time and stream that
// each line begins with: 80 lines, 2 KiB, as kubelet's. Of a log that cannot be read
// there are none.
func LastLines(file string) []byte {
	f, err := openRegular(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 2048
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-2*most), io.SeekStart) // else from the beginning
	}
	b, _ := io.ReadAll(io.LimitReader(f, 2*most)) // what could be read is better than nothing
	lines := bytes.SplitAfter(b, []byte("\n"))
	var out []byte
	for _, l := range lines[max(0, len(lines)-80):] {
		if part := bytes.SplitN(l, []byte(" "), 4); len(part) == 4 {
			out = append(out, part[3]...)
		}
	}
	return out[max(0, len(out)-most):]
}
