module github.com/fairlead/fairlead/bench

go 1.26.8

require (
	github.com/vishvananda/netlink v1.3.2-0.20260402033159-af2a3ea580ab
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.48.0
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

require (
	github.com/fairlead/fairlead v0.0.0
	github.com/google/pprof v0.0.0-20250820193118-f64d9cf942d6
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	google.golang.org/grpc v1.85.0
	k8s.io/cri-api v0.36.6
)

replace github.com/fairlead/fairlead => ../
