module github.com/fairlead/fairlead/bench

go 1.26.0

require (
	github.com/vishvananda/netlink v1.3.2-0.20260402033159-af2a3ea580ab
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.48.0
)

require (
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
