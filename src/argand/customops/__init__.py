"""customops: operators that users define. One definition serves eager, autograd, capture and codegen."""
