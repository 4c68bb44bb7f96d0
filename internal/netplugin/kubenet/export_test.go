package kubenet

// LeastMTU is leastMTU for tests.
var LeastMTU = leastMTU
