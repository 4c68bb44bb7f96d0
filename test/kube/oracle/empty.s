// The linker fills in what main.go declares without a body.
