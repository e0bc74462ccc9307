"""capture.sizes: open sizes while a frame is traced.

The algebra, tables and plans are in the room `argand.sizes`; here is what needs the tracer.

values       sizes as the traced program sees them: `Size`, `Shape`, `Claim`
floats       the same for floats: `Float`
places       which dimensions of a tensor are open
frame_sizes  `FrameSizes`: the open sizes of one attempt
fitting      what has to hold for a call that fails on the samples
relations    facts as guards
twin         the finished graph is run again for other sizes
"""
