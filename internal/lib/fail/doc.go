// Package fail names the places where a crash is tested. With the build tag
// `failpoint` a test can have the process kill itself at a named place
// (on.go); without it Here is empty and costs nothing. It knows no other
// package.
package fail
